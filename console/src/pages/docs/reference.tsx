import { useState } from "react";
import { Link } from "wouter";
import { Code } from "../../snippets/code.tsx";
import { curlTo, EXAMPLES, type Examples, type Reader } from "../../snippets/examples.ts";
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
  sampleQueryOf,
  typeLabel,
} from "./document.ts";
import { TASKS } from "./tasks.ts";

/** All operations in groups, each of which leads to its description. */
export function OperationList({ operations }: { operations: readonly Operation[] }) {
  return (
    <Card title="All operations" about="The OpenAPI document is at /openapi.json, and as YAML at /docs/yaml.">
      <div className="columns">
        {groupedOperations(operations).map(([title, group]) => (
          <section key={title} className="stack-small">
            <h3>{title}</h3>
            <OperationLinks operations={group} />
          </section>
        ))}
      </div>
    </Card>
  );
}

/** Operations by method and path, with links to their descriptions. */
export function OperationLinks({ operations }: { operations: readonly Operation[] }) {
  return (
    <ul className="operations">
      {operations.map(({ operationId, method, path, summary }) => (
        <li key={operationId}>
          <span className="small mono faint wrap-anywhere">
            {method} {path}
          </span>
          <Link href={`/docs?operation=${encodeURIComponent(operationId)}`}>{withoutTicks(summary)}</Link>
        </li>
      ))}
    </ul>
  );
}

/** Returns a text of the OpenAPI document, which is Markdown, as plain text. */
export function withoutTicks(text: string): string {
  return text.replaceAll("`", "");
}

/** One operation: an example, its parameters, its body and its answers. */
export function OperationPage({ operation, reader }: { operation: Operation; reader: Reader }) {
  const { description, parameters = [], requestBody, responses } = operation;
  const { "application/json": json, "multipart/form-data": form } = requestBody?.content ?? {};
  const body = (json ?? form)?.schema;
  const codes = Object.entries(responses).toSorted(([one], [other]) => Number(one) - Number(other));
  const [answers, errors] = [true, false].map((wanted) =>
    codes.filter(([code]) => code.startsWith("2") === wanted),
  ) as [typeof codes, typeof codes];
  return (
    <>
      {description && <p>{withoutTicks(description)}</p>}
      <Card title="Example">
        <Code text={exampleOf(operation, reader)} />
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
      {answers.map(([code, { description: text, content }]) => (
        <Card key={code} title={`Answer ${code}`} about={withoutTicks(text)}>
          {content?.["application/json"] && <Fields schema={content["application/json"].schema} />}
        </Card>
      ))}
      {errors.length > 0 && (
        <Card title="Errors" about="Each has a message, a type, a code and a parameter. The codes by status:">
          <ul className="schema">
            {errors.map(([code, { description: text }]) => (
              <li key={code}>
                <code>{code}</code>
                <p className="small wrap-anywhere">{withoutTicks(text)}</p>
              </li>
            ))}
          </ul>
        </Card>
      )}
    </>
  );
}

/** Returns the curl command of the task that is about an operation, or one with what the operation requires. */
function exampleOf({ operationId, method, path, parameters = [], requestBody }: Operation, reader: Reader): string {
  const task = TASKS.find(({ operations: [first] }) => first === operationId);
  const { curl }: Examples = task === undefined ? {} : EXAMPLES[task.id](reader);
  if (curl !== undefined) return curl;
  const schema = requestBody?.content["application/json"]?.schema;
  const hasModel = schema?.properties?.model !== undefined && path.startsWith("/v1/");
  const body = schema && { ...(sampleOf(schema) as object), ...(hasModel && { model: reader.model }) };
  return curlTo(reader, { method, path: path + sampleQueryOf(parameters), ...(body !== undefined && { body }) });
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
  const text = withoutTicks(descriptionOf(schema));
  const bounds = boundsLabel(schema);
  return (
    <>
      {text !== "" && <p className="small">{text}</p>}
      {bounds !== "" && <p className="small faint">Allowed: {bounds}</p>}
    </>
  );
}
