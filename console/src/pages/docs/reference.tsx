import { useState } from "react";
import { Link } from "wouter";
import { Code } from "../../snippets/code.tsx";
import { curlTo, type Reader } from "../../snippets/examples.ts";
import { Card } from "../../ui/page.tsx";
import { Badge } from "../../ui/states.tsx";
import {
  boundsLabel,
  descriptionOf,
  groupedOperations,
  type JsonSchema,
  type Operation,
  objectsOf,
  sampleOf,
  typeLabel,
} from "./document.ts";

/** All operations in groups, each of which leads to its description. */
export function OperationList({ operations }: { operations: readonly Operation[] }) {
  return (
    <Card title="All operations" about="The OpenAPI document is at /openapi.json, and as YAML at /docs/yaml.">
      <div className="columns">
        {groupedOperations(operations).map(([title, group]) => (
          <section key={title} className="stack-small">
            <h3>{title}</h3>
            <ul className="operations">
              {group.map((operation) => (
                <li key={operation.operationId}>
                  <span className="small mono faint wrap-anywhere">
                    {operation.method} {operation.path}
                  </span>
                  <OperationLink operation={operation} />
                </li>
              ))}
            </ul>
          </section>
        ))}
      </div>
    </Card>
  );
}

export function OperationLink({ operation: { operationId, summary } }: { operation: Operation }) {
  return <Link href={`/docs?operation=${encodeURIComponent(operationId)}`}>{summary}</Link>;
}

/** One operation: an example, its parameters, its body and its answers. */
export function OperationPage({ operation, reader }: { operation: Operation; reader: Reader }) {
  const { method, path, description, parameters = [], requestBody, responses } = operation;
  const body = requestBody?.content["application/json"]?.schema;
  const codes = Object.entries(responses).toSorted(([one], [other]) => Number(one) - Number(other));
  return (
    <>
      {description && <p>{description.replaceAll("`", "")}</p>}
      <Card title="Example">
        <Code text={curlTo(reader, { method, path, ...(body !== undefined && { body: sampleOf(body) }) })} />
      </Card>
      {parameters.length > 0 && (
        <Card title="Parameters">
          <ul className="schema">
            {parameters.map((parameter) => (
              <li key={`${parameter.in} ${parameter.name}`}>
                <FieldHead name={parameter.name} schema={parameter.schema} isRequired={parameter.required === true} />
                <FieldText
                  schema={{
                    ...parameter.schema,
                    description: parameter.description ?? parameter.schema.description ?? "",
                  }}
                />
                <p className="small faint">In the {parameter.in}</p>
              </li>
            ))}
          </ul>
        </Card>
      )}
      {body !== undefined && (
        <Card title="Body">
          <Fields schema={body} />
        </Card>
      )}
      {codes.map(([code, { description: text, content }]) => (
        <Answer key={code} code={code} text={text} schema={content?.["application/json"]?.schema} />
      ))}
    </>
  );
}

function Answer({ code, text, schema }: { code: string; text: string; schema: JsonSchema | undefined }) {
  const isSuccess = code.startsWith("2");
  return (
    <Card title={`Answer ${code}`} about={text.replaceAll("`", "")}>
      {isSuccess && schema !== undefined && <Fields schema={schema} />}
      {!isSuccess && <p className="small faint">An error with its message, type, code and parameter.</p>}
    </Card>
  );
}

/** The fields of an object, or of each alternative. */
function Fields({ schema }: { schema: JsonSchema }) {
  const objects = objectsOf(schema);
  if (objects.length === 0) return <FieldText schema={schema} />;
  return objects.map(({ label, schema: { properties = {}, required = [] } }) => (
    <div key={label + Object.keys(properties).join()} className="stack-small">
      {objects.length > 1 && label !== "" && <p className="small faint">With {label}</p>}
      <ul className="schema">
        {Object.entries(properties).map(([name, field]) => (
          <li key={name}>
            <FieldHead name={name} schema={field} isRequired={required.includes(name)} />
            <FieldText schema={field} />
            {objectsOf(field).length > 0 && <Inner name={name} schema={field} />}
          </li>
        ))}
      </ul>
    </div>
  ));
}

/** The fields of a field, which are rendered once they are opened. */
function Inner({ name, schema }: { name: string; schema: JsonSchema }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>Fields of {name}</summary>
      {isOpen && <Fields schema={schema} />}
    </details>
  );
}

function FieldHead({ name, schema, isRequired }: { name: string; schema: JsonSchema; isRequired: boolean }) {
  return (
    <span className="row">
      <code>{name}</code>
      <span className="small faint wrap-anywhere">{typeLabel(schema)}</span>
      {isRequired && <Badge tone="accent">required</Badge>}
    </span>
  );
}

function FieldText({ schema }: { schema: JsonSchema }) {
  const text = descriptionOf(schema).replaceAll("`", "");
  const bounds = boundsLabel(schema);
  return (
    <>
      {text !== "" && <p className="small">{text}</p>}
      {bounds !== "" && <p className="small faint">Allowed: {bounds}</p>}
    </>
  );
}
