import fc from "fast-check";
import { expect, test } from "vitest";
import { FairQueue, FairTurns } from "./fair-queue.ts";

interface Item {
  owner: string;
  number: number;
}

const owners = fc.constantFrom("a", "b", "c");
const itemsOf = (names: readonly string[]) => names.map((owner, number): Item => ({ owner, number }));
const make = (items: readonly Item[] = []) => {
  const queue = new FairQueue<Item>(({ owner }) => owner);
  for (const item of items) queue.push(item);
  return queue;
};

function takeAllInTurn(queue: FairQueue<Item>): Item[] {
  const taken: Item[] = [];
  for (let item = queue.shift(); item !== undefined; item = queue.shift()) taken.push(item);
  return taken;
}

test("Owners are served in turn, and the items of each in their order.", () => {
  fc.assert(
    fc.property(fc.array(owners, { maxLength: 60 }), (names) => {
      const items = itemsOf(names);
      const taken = takeAllInTurn(make(items));
      expect(taken.toSorted((one, other) => one.number - other.number)).toEqual(items);
      for (const owner of ["a", "b", "c"]) {
        const own = taken.filter((item) => item.owner === owner);
        expect(own).toEqual(items.filter((item) => item.owner === owner));
        // Between two items of an owner, each other owner with items left is served once.
        for (const [index, item] of own.entries()) {
          const next = own[index + 1];
          if (next === undefined) break;
          const between = taken.slice(taken.indexOf(item) + 1, taken.indexOf(next)).map((other) => other.owner);
          expect(new Set(between).size).toBe(between.length);
        }
      }
    }),
  );
});

test("An owner who comes later is served next, however many items another has.", () => {
  const queue = make(itemsOf(Array<string>(1_000).fill("a")));
  queue.shift();
  const late = { owner: "b", number: 1_000 };
  queue.push(late);
  expect([queue.shift()?.owner, queue.shift()]).toEqual(["a", late]);
});

test("Items that are put back are served before the others of their owners, in their order.", () => {
  const items = itemsOf(["a", "a", "b", "a", "b"]);
  const queue = make(items);
  const taken = [queue.shift(), queue.shift(), queue.shift()].filter((item) => item !== undefined);
  queue.unshift(taken);
  const again = takeAllInTurn(queue);
  for (const owner of ["a", "b"]) {
    expect(again.filter((item) => item.owner === owner)).toEqual(items.filter((item) => item.owner === owner));
  }
});

test("The size is the number of items, whatever is added, put back and taken.", () => {
  const operation = fc.oneof(
    owners.map((owner) => ({ kind: "push" as const, owner })),
    fc.constantFrom({ kind: "shift" as const }, { kind: "putBack" as const }, { kind: "takeAll" as const }),
    owners.map((owner) => ({ kind: "takeOwner" as const, owner })),
  );
  fc.assert(
    fc.property(fc.array(operation, { maxLength: 60 }), (operations) => {
      const queue = make();
      let model: Item[] = [];
      let last: Item[] = [];
      let made = 0;
      const leave = (taken: readonly Item[]) => {
        model = model.filter((item) => !taken.includes(item));
        last = [...taken];
      };
      for (const one of operations) {
        if (one.kind === "push") {
          const item = { owner: one.owner, number: made };
          made += 1;
          model.push(item);
          queue.push(item);
        } else if (one.kind === "shift") leave([queue.shift()].filter((item) => item !== undefined));
        else if (one.kind === "takeAll") leave(queue.takeAll());
        else if (one.kind === "takeOwner") leave(queue.takeOwner(one.owner));
        else {
          queue.unshift(last);
          model.push(...last);
          last = [];
        }
        expect(queue.size).toBe(model.length);
      }
      expect(new Set(takeAllInTurn(queue))).toEqual(new Set(model));
    }),
  );
});

test("An owner that is busy is passed over.", () => {
  const [first, second] = itemsOf(["a", "b"]);
  const queue = make([first, second] as Item[]);
  expect(queue.shift(new Set(["a"]))).toBe(second);
  expect(queue.shift(new Set(["a"]))).toBeUndefined();
  expect(queue.shift()).toBe(first);
});

test.each([1, 2])(
  "Tasks of %i owners run at a time, one of each in turn, and settle their own promises.",
  async (ownersMax) => {
    const turns = new FairTurns(ownersMax);
    const running: string[] = [];
    const began: string[] = [];
    let atOnce = 0;
    const run = (owner: string, number: number) =>
      turns.run(owner, async () => {
        expect(running).not.toContain(owner);
        running.push(owner);
        atOnce = Math.max(atOnce, running.length);
        began.push(owner);
        for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
        running.splice(running.indexOf(owner), 1);
        if (owner === "c") throw new Error("no");
        return number;
      });
    const results = [1, 2, 3].map((number) => run("a", number));
    const other = run("b", 1);
    await expect(run("c", 1)).rejects.toThrow("no");
    expect(await Promise.all([...results, other])).toEqual([1, 2, 3, 1]);
    expect(atOnce).toBe(ownersMax);
    expect(began.indexOf("c")).toBeLessThan(began.lastIndexOf("a"));
  },
);

test("A long task is followed by a pause, in which the event loop has many turns for other work.", async () => {
  const turns = new FairTurns(1, () => performance.now());
  let loopTurns = 0;
  let isOver = false;
  const count = () => {
    loopTurns += 1;
    if (!isOver) setImmediate(count);
  };
  const block = () => {
    const until = performance.now() + 50;
    while (performance.now() < until);
    loopTurns = 0;
  };
  setImmediate(count);
  const first = turns.run("a", block);
  const between = await turns.run("a", () => loopTurns);
  await first;
  isOver = true;
  // A single turn without the pause, thousands with it.
  expect(between).toBeGreaterThan(3);
});

test("The pause ends though the clock counted hours, for which the process was stopped.", async () => {
  let nowMs = 0;
  const turns = new FairTurns(1, () => nowMs);
  const first = turns.run("a", () => {
    nowMs += 3_600_000;
  });
  expect(await turns.run("b", () => "ran")).toBe("ran");
  await first;
});
