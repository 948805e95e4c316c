import { Pencil } from "lucide-react";
import { useState } from "react";
import { ApiFailure } from "../../api/client.ts";
import type { Organization, OrganizationChange } from "../../api/types.ts";
import { useAccess } from "../../shell/session.ts";
import { Button } from "../../ui/button.tsx";
import { DialogForm } from "../../ui/dialog.tsx";
import { Field, TextField } from "../../ui/field.tsx";
import { Card, Facts } from "../../ui/page.tsx";
import { useChange } from "./organization-forms.tsx";

type Terms = Pick<OrganizationChange, "price_list" | "models" | "aliases" | "external_id" | "contacts" | "note">;
type TermTexts = Record<keyof Terms, string>;

const NO_TERM = "None";

/** Shows what is agreed with an organization, and lets an operator change it. */
export function TermsCard({ organization }: { organization: Organization }) {
  const { may } = useAccess();
  const [isOpen, setOpen] = useState(false);
  const texts = textsOf(organization);
  return (
    <Card
      title="Terms"
      actions={
        may("organizations:write") && (
          <Button icon={Pencil} onClick={() => setOpen(true)}>
            Edit terms
          </Button>
        )
      }
    >
      <Facts
        facts={[
          ["Price list", texts.price_list || "Prices of the models"],
          ["Models", texts.models || "All"],
          ["Aliases", texts.aliases || NO_TERM],
          ["External ID", texts.external_id || NO_TERM],
          ["Contacts", texts.contacts || NO_TERM],
          ...(organization.note === null
            ? []
            : [
                [
                  "Note",
                  <span key="note" className="pre-wrap wrap-anywhere">
                    {organization.note}
                  </span>,
                ] as const,
              ]),
        ]}
      />
      {isOpen && <EditTerms organization={organization} onClose={() => setOpen(false)} />}
    </Card>
  );
}

function EditTerms({ organization, onClose }: { organization: Organization; onClose: () => void }) {
  // The state when the dialog opened: only fields that the user changed are sent.
  const [before] = useState(() => textsOf(organization));
  const [texts, setTexts] = useState(before);
  const [sent, setSent] = useState<TermTexts | null>(null);
  const change = useChange({ organization, onClose });
  const submit = () => {
    setSent(texts);
    const stated = Object.entries(readTerms(texts)).filter(([name]) => {
      const field = name as keyof Terms;
      return texts[field] !== before[field];
    });
    if (stated.length === 0) onClose();
    else change.mutate(Object.fromEntries(stated));
  };
  const errorOf = (field: keyof Terms) =>
    sent === texts && change.error instanceof ApiFailure && change.error.param?.startsWith(field) === true
      ? change.error.message
      : null;
  const field = (name: keyof Terms) => ({
    value: texts[name],
    error: errorOf(name),
    onValue: (value: string) => setTexts({ ...texts, [name]: value }),
  });
  const note = field("note");
  return (
    <DialogForm title="Terms" action="Save" attempt={change} onSubmit={submit} onClose={onClose}>
      <TextField
        label="Price list"
        hint="Name of a list in priceLists of the configuration. Leave blank for the prices of the models."
        maxLength={64}
        {...field("price_list")}
      />
      <TextField
        label="Models"
        hint="Separate with commas. A * at the end matches any ending. Leave blank for all models."
        {...field("models")}
      />
      <TextField
        label="Aliases"
        hint="Names of models that only this organization can use, such as fast=gpt-5-mini, separated with commas."
        {...field("aliases")}
      />
      <TextField
        label="External ID"
        hint="Its ID in another system, such as a billing system. No two organizations have the same."
        maxLength={200}
        {...field("external_id")}
      />
      <TextField label="Contacts" hint="Mail addresses, separated with commas." {...field("contacts")} />
      <Field label="Note" hint="Only operators and auditors can read it." error={note.error}>
        {(attributes) => (
          <textarea
            {...attributes}
            rows={3}
            maxLength={2_000}
            value={note.value}
            onChange={({ target }) => note.onValue(target.value)}
          />
        )}
      </Field>
    </DialogForm>
  );
}

function textsOf({ price_list, models, aliases, external_id, contacts, note }: Organization): TermTexts {
  return {
    price_list: price_list ?? "",
    models: models?.join(", ") ?? "",
    aliases: Object.entries(aliases ?? {})
      .map(([alias, model]) => `${alias}=${model}`)
      .join(", "),
    external_id: external_id ?? "",
    contacts: contacts?.join(", ") ?? "",
    note: note ?? "",
  };
}

/** Reads the texts of the form; a blank one removes the term. */
function readTerms({ price_list, models, aliases, external_id, contacts, note }: TermTexts): Terms {
  return {
    price_list: price_list.trim() || null,
    models: listIn(models),
    aliases: aliasesIn(aliases),
    external_id: external_id.trim() || null,
    contacts: listIn(contacts),
    note: note.trim() || null,
  };
}

function listIn(text: string): string[] | null {
  const parts = text.split(",").map((part) => part.trim());
  const stated = parts.filter((part) => part !== "");
  return stated.length === 0 ? null : stated;
}

/** Reads the model of each name; a part without `=` has none, which the service refuses. */
function aliasesIn(text: string): Record<string, string> | null {
  const pairs = listIn(text)?.map((part) => {
    const [alias = "", ...model] = part.split("=");
    return [alias.trim(), model.join("=").trim()] as const;
  });
  return pairs === undefined ? null : Object.fromEntries(pairs);
}
