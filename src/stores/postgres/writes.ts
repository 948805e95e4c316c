/**
 * Makes the statement that writes rows from what is given of them. It is planned each time: a plan that was kept from when
 * a table was small would read all of it.
 */
export interface Write {
  table: string;
  columns: Record<string, string>;
  text(given: Given): string;
}

/** The rows of a write as parameters: what all of them share once, everything else as one array a column. */
export interface Given {
  values: unknown[];
  /** What stands for each column. */
  terms: Record<string, string>;
  /** Gives a row for each that is to be written. */
  from: string;
}

/** Of a batch's holds and events most columns are the same: they are neither written out nor read again for each. */
export function give(columns: Record<string, string>, rows: Record<string, unknown>[]): Given {
  const names = Object.keys(columns);
  const isShared = (name: string) => rows.every((row) => row[name] === rows[0]?.[name]);
  // There is always one array, which the number of rows comes from.
  const arrays = new Set(names.filter((name) => !isShared(name)));
  if (arrays.size === 0 && names[0] !== undefined) arrays.add(names[0]);
  const place = (name: string) => `$${names.indexOf(name) + 1}::${columns[name]}`;
  const listed = [...arrays];
  return {
    values: names.map((name) => (arrays.has(name) ? rows.map((row) => row[name]) : rows[0]?.[name])),
    terms: Object.fromEntries(names.map((name) => [name, arrays.has(name) ? `given.${name}` : place(name)])),
    from: `unnest(${listed.map((name) => `${place(name)}[]`).join(", ")}) AS given (${listed.join(", ")})`,
  };
}

/** Inserts rows. */
export function insert(table: string, columns: Record<string, string>): Write {
  const names = Object.keys(columns);
  const text = ({ terms, from }: Given) =>
    `INSERT INTO ${table} (${names.join(", ")}) SELECT ${names.map((name) => terms[name]).join(", ")} FROM ${from}`;
  return { table, columns, text };
}

/** Inserts, or takes the place of the row with the same key. */
export function put(table: string, columns: Record<string, string>, key: string[]): Write {
  const inserted = insert(table, columns);
  const changed = Object.keys(columns).filter((name) => !key.includes(name));
  const conflict = `ON CONFLICT (${key.join(", ")}) DO UPDATE SET ${changed.map((name) => `${name} = excluded.${name}`).join(", ")}`;
  return { ...inserted, text: (given) => `${inserted.text(given)} ${conflict}` };
}

/** Changes the rows with the same key. */
export function update(table: string, columns: Record<string, string>, key: string[]): Write {
  const changed = Object.keys(columns).filter((name) => !key.includes(name));
  const text = ({ terms, from }: Given) => {
    const set = changed.map((name) => `${name} = ${terms[name]}`).join(", ");
    return `UPDATE ${table} SET ${set} FROM ${from} WHERE ${key.map((name) => `${table}.${name} = ${terms[name]}`).join(" AND ")}`;
  };
  return { table, columns, text };
}
