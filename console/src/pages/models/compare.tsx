import type { Model } from "../../api/types.ts";
import { Button } from "../../ui/button.tsx";
import { Card } from "../../ui/page.tsx";
import { factsOf } from "./facts.tsx";

/** Models side by side. */
export function Compare({ models, onClear }: { models: readonly Model[]; onClear: () => void }) {
  if (models.length === 0) return null;
  if (models.length === 1) return <p className="soft">Select another model to compare with {models[0]?.name}.</p>;
  const told = models.map((model) => ({ model, facts: factsOf(model) }));
  const names = told[0]?.facts.map(([name]) => name) ?? [];
  return (
    <Card title="Comparison" flush actions={<Button onClick={onClear}>Clear</Button>}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls has to be reached by keyboard */}
      <section className="table-scroll" tabIndex={0} aria-label="Model comparison">
        <table className="table compare">
          <caption className="visually-hidden">Model comparison</caption>
          <thead>
            <tr>
              <td />
              {told.map(({ model }) => (
                <th key={model.id} scope="col">
                  {model.name}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {names.map((name, index) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                {told.map(({ model, facts }) => (
                  <td key={model.id}>{facts[index]?.[1]}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </Card>
  );
}
