/**
 * `npm run bench`: what the gate costs. Two proxies, Portkey's gateway and Tollgate in front of the same upstream, in
 * turns, each with the same load; prints a table. Options: --seconds of a round, --rounds, --connections 8,32,256, and
 * --before FOLDER: another checkout of Tollgate, with its packages, that takes part as well; --answers unstreamed: one kind
 * of answer alone; --events of a streamed answer, and the milliseconds that are --apart between two of them: by default
 * they arrive at once; --quick: without the proxy that passes bytes and Portkey; --wires: instead of the other gateways, the
 * inbound wires of Tollgate; embeddings are not streamed.
 */
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { checkAnswer } from "./answers.ts";
import {
  type Contender,
  machineFacts,
  otherWires,
  type Pace,
  startPortkey,
  startProxy,
  startTollgate,
  startUpstream,
  type Tollgate,
} from "./contenders.ts";
import { EVENTS_DEFAULT, isEmbeddings, MICRO_CREDITS_AN_ANSWER, requestBody } from "./payload.ts";
import { Processes, pause, run } from "./processes.ts";
import { type Cell, toMarkdown } from "./report.ts";
import { loadGenerator, type Measured, type MeasuredRound, type Round } from "./round.ts";

const WARM_UP_SECONDS = 3;
const KINDS = ["unstreamed", "streamed"];
const LOAD = join(dirname(fileURLToPath(import.meta.url)), "load.ts");

interface Plan {
  seconds: number;
  rounds: number;
  connections: number[];
  before: string | undefined;
  /** The kinds of answers: streamed or not. */
  kinds: boolean[];
  wires: boolean;
  quick: boolean;
  pace: Pace;
}

/** One kind of answer: who takes part, how long an answer is, and who was left out and why. */
interface Field {
  streamed: boolean;
  entrants: { contender: Contender; leastBytes: number }[];
}

function readPlan(): Plan {
  const { values } = parseArgs({
    options: {
      seconds: { type: "string", default: "5" },
      rounds: { type: "string", default: "5" },
      connections: { type: "string", default: "8,32,256" },
      before: { type: "string" },
      answers: { type: "string", default: KINDS.join() },
      wires: { type: "boolean", default: false },
      quick: { type: "boolean", default: false },
      events: { type: "string", default: String(EVENTS_DEFAULT) },
      apart: { type: "string", default: "0" },
    },
  });
  const plan = {
    seconds: Number(values.seconds),
    rounds: Number(values.rounds),
    connections: values.connections.split(",").map(Number),
    before: values.before,
    kinds: values.answers.split(",").map((kind) => kind === "streamed"),
    wires: values.wires,
    quick: values.quick,
    pace: { events: Number(values.events), apartMs: Number(values.apart) },
  };
  const { events, apartMs } = plan.pace;
  const all = [plan.seconds, plan.rounds, ...plan.connections, events, apartMs + 1];
  if (!all.every((one) => Number.isInteger(one) && one > 0)) {
    console.error(
      "bench: --seconds, --rounds, --connections, --events and --apart take whole numbers, --connections with commas",
    );
    process.exit(1);
  }
  if (!values.answers.split(",").every((kind) => KINDS.includes(kind))) {
    console.error(`bench: --answers takes ${KINDS.join(", ")} or both with a comma`);
    process.exit(1);
  }
  return plan;
}

/** Lets every contender answer once before it is measured. Only Portkey may fail here, and is then left out. */
async function enter(contenders: Contender[], streamed: boolean, notes: string[]): Promise<Field> {
  const field: Field = { streamed, entrants: [] };
  for (const contender of contenders) {
    try {
      const bytes = await checkAnswer(contender, streamed);
      field.entrants.push({ contender, leastBytes: Math.floor(bytes * 0.9) });
    } catch (error) {
      const what = `${contender.name}, ${streamed ? "streamed" : "unstreamed"}: ${String(error)}`;
      if (contender.name !== "Portkey") throw new Error(what);
      notes.push(`Left out: ${what}`);
    }
  }
  return field;
}

async function measure(
  contender: Contender,
  field: Field,
  round: Omit<Round, "url" | "headers" | "body">,
): Promise<MeasuredRound> {
  const { streamed } = field;
  const url = contender.url(streamed);
  const whole: Round = {
    ...round,
    url,
    headers: contender.headers(streamed),
    body: requestBody(contender.wire, streamed),
  };
  const beforeMs = contender.processorMs();
  const measured = JSON.parse(await run(process.execPath, [LOAD, JSON.stringify(whole)])) as Measured;
  const afterMs = contender.processorMs();
  if (measured.failures > 0 || measured.answers === 0) {
    const statuses = JSON.stringify(measured.statuses);
    throw new Error(`${contender.name}: ${measured.failures} failures and ${measured.answers} answers, ${statuses}`);
  }
  const usedMs = beforeMs === undefined || afterMs === undefined ? undefined : afterMs - beforeMs;
  const processorMicrosecondsPerAnswer = usedMs === undefined ? undefined : (usedMs * 1000) / measured.answers;
  return { ...measured, processorMicrosecondsPerAnswer };
}

/** The rounds of one kind of answer at one number of connections: A B C, B C A, and so on. */
async function measureCells(
  field: Field,
  connections: number,
  plan: Plan,
  onRound: (m: Measured, name: string) => void,
) {
  const cells = field.entrants.map(({ contender }): Cell => {
    return { streamed: field.streamed, connections, contender: contender.name, rounds: [] };
  });
  for (const { contender, leastBytes } of field.entrants) {
    const warmedUp = await measure(contender, field, { connections, seconds: WARM_UP_SECONDS, leastBytes });
    onRound(warmedUp, contender.name);
  }
  for (let round = 0; round < plan.rounds; round += 1) {
    for (let turn = 0; turn < field.entrants.length; turn += 1) {
      const index = (round + turn) % field.entrants.length;
      const entrant = field.entrants[index];
      if (entrant === undefined) continue;
      const { contender, leastBytes } = entrant;
      const measured = await measure(contender, field, { connections, seconds: plan.seconds, leastBytes });
      cells[index]?.rounds.push(measured);
      onRound(measured, contender.name);
      const kind = field.streamed ? "streamed" : "unstreamed";
      console.error(
        `${kind}, ${connections} connections: ${contender.name} ${Math.round(measured.requestsPerSecond)}/s, ` +
          `${measured.processorMicrosecondsPerAnswer?.toFixed(0)} µs of processor time per request`,
      );
    }
  }
  return cells;
}

/** Checks that every complete answer was charged, and otherwise only answers that the end of a round cut off. */
async function audit(tollgate: Tollgate, answers: number, cutOffMost: number): Promise<string> {
  await pause(1000);
  const { ok, chargedMicroCredits, heldMicroCredits } = await tollgate.audit();
  const charged = chargedMicroCredits / MICRO_CREDITS_AN_ANSWER;
  if (!ok || heldMicroCredits !== 0 || charged < answers || charged > answers + cutOffMost) {
    throw new Error(`The books: ok ${ok}, held ${heldMicroCredits}, charged for ${charged} of ${answers} answers`);
  }
  return `Tollgate's books balance: ${answers} complete answers, ${Math.round(charged)} charged.`;
}

/** Starts the gateways that Tollgate is compared with. */
async function startOthers({ quick }: Plan, processes: Processes, upstream: string): Promise<Contender[]> {
  const parsing = await startProxy("parsing", processes, upstream);
  if (quick) return [parsing];
  return [await startProxy("bare", processes, upstream), parsing, await startPortkey(processes, upstream)];
}

async function main(processes: Processes, folder: string): Promise<void> {
  const plan = readPlan();
  const notes: string[] = [];
  const upstream = await startUpstream(processes, folder, plan.pace);
  const tollgate = await startTollgate(processes, upstream.url, join(folder, "now"));
  const contenders = plan.wires
    ? [tollgate, ...otherWires(tollgate)]
    : [...(await startOthers(plan, processes, upstream.url)), tollgate];
  const audited = new Set(contenders.filter((one) => plan.wires || one === tollgate).map(({ name }) => name));
  if (plan.before !== undefined) {
    const other = { name: "Tollgate before", checkout: resolve(plan.before) };
    contenders.push(await startTollgate(processes, upstream.url, join(folder, "before"), other));
  }
  let answers = 0;
  let cutOffMost = 0;
  const cells: Cell[] = [];
  for (const streamed of plan.kinds) {
    const able = contenders.filter(({ wire }) => !streamed || !isEmbeddings(wire));
    const field = await enter(able, streamed, notes);
    answers += able.filter(({ name }) => audited.has(name)).length;
    for (const connections of plan.connections) {
      const onRound = (measured: Measured, name: string) => {
        processes.assertRunning();
        if (!audited.has(name)) return;
        answers += measured.answers;
        cutOffMost += connections;
      };
      cells.push(...(await measureCells(field, connections, plan, onRound)));
    }
  }
  notes.push(await audit(tollgate, answers, cutOffMost));
  console.log(`\n${toMarkdown(cells, tollgate.name)}\n`);
  console.log(
    `${machineFacts()}; upstream: ${upstream.name}; load: ${loadGenerator()} in a process of its own on the same machine;`,
  );
  console.log(`${plan.rounds} rounds of ${plan.seconds} s each, in turns; each figure is the median of the rounds.`);
  for (const note of notes) console.log(note);
}

const parent = join(tmpdir(), "tollgate-bench");
mkdirSync(parent, { recursive: true });
const folder = mkdtempSync(join(parent, "run-"));
const processes = new Processes(folder);
try {
  await main(processes, folder);
} catch (error) {
  console.error(`bench: ${error instanceof Error ? error.message : String(error)}`);
  process.exitCode = 1;
} finally {
  await processes.endAll();
  rmSync(folder, { recursive: true, force: true });
}
