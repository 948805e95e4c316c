import fc from "fast-check";
import { expect, test } from "vitest";
import type { Route } from "../catalog/model.ts";
import { UpstreamError, type UpstreamFailure } from "../errors.ts";
import { Circuit, Circuits } from "./circuit.ts";
import { CONSEQUENCES } from "./failures.ts";

const ROUTE = { providerId: "up", model: "m" };
const failure = (kind: UpstreamFailure = "failed", retryAfterSeconds?: number) =>
  new UpstreamError(kind, "It failed", retryAfterSeconds === undefined ? {} : { retryAfterSeconds });

/** Makes a circuit with a clock of its own; each call takes a millisecond. */
function begin({ opens = true } = {}) {
  const circuit = new Circuit(ROUTE, opens);
  const at = { ms: 1_000_000 };
  const call = (outcome: "answered" | UpstreamError) => {
    const startedMs = at.ms;
    if (!circuit.admits(startedMs)) return "refused";
    at.ms += 1;
    return outcome === "answered" ? circuit.answered(startedMs, at.ms) : circuit.failed(outcome, startedMs, at.ms);
  };
  const open = () => Array.from({ length: 5 }, () => call(failure()));
  return { circuit, at, call, open, health: () => circuit.health(at.ms) };
}

test("A circuit opens with the fifth failure in a row.", () => {
  const { call, open, health } = begin();
  for (let count = 0; count < 4; count += 1) expect(call(failure())).toBeUndefined();
  call("answered");
  expect(open()).toEqual([undefined, undefined, undefined, undefined, "opened"]);
  expect(call("answered")).toBe("refused");
  expect(health()).toMatchObject({ provider: "up", model: "m", state: "open", recent: { successes: 1, failures: 9 } });
});

test("An open circuit admits a probe after 1 s, then after 2, 4 and so on up to 30 s, and closes with an answer.", () => {
  const { at, call, open, health } = begin();
  open();
  for (const seconds of [1, 2, 4, 8, 16, 30, 30]) {
    at.ms += seconds * 1000 - 1;
    expect(call("answered")).toBe("refused");
    at.ms += 1;
    expect(call(failure())).toBeUndefined();
  }
  at.ms += 30_000;
  expect(call("answered")).toBe("closed");
  expect(health()).toMatchObject({ state: "closed", nextProbeAtMs: null, lastSuccessAtMs: at.ms, firstByteMs: 1 });
  expect(call("answered")).toBeUndefined();
});

test("A probe that hangs delays the next one by the pause only.", () => {
  const { circuit, at, open, health } = begin();
  open();
  at.ms += 1000;
  expect(circuit.admits(at.ms)).toBe(true);
  expect(health().state).toBe("half_open");
  expect(circuit.admits(at.ms + 999)).toBe(false);
  expect(circuit.admits(at.ms + 1000)).toBe(true);
});

test("Calls that began before the circuit opened do not change it.", () => {
  const { circuit, at, open, health } = begin();
  const early = at.ms;
  open();
  const { nextProbeAtMs } = health();
  for (let count = 0; count < 20; count += 1) expect(circuit.failed(failure(), early, at.ms + count)).toBeUndefined();
  expect(circuit.answered(early, at.ms + 20)).toBeUndefined();
  expect(health()).toMatchObject({ state: "open", nextProbeAtMs });
});

test("A failure caused by the request counts as a sign that the upstream works.", () => {
  for (const kind of ["rejected", "context_length", "content_filter"] as const) {
    const { at, call, open, health } = begin();
    for (let count = 0; count < 4; count += 1) call(failure());
    call(failure(kind));
    expect(call(failure())).toBeUndefined();
    open();
    at.ms += 30_000;
    expect(call(failure(kind))).toBe("closed");
    expect(health().lastFailure).toMatchObject({ failure: "failed" });
  }
});

test("A request that the wire cannot express does not change the circuit.", () => {
  const { at, call, open, health } = begin();
  for (let count = 0; count < 4; count += 1) call(failure());
  call(failure("unsupported"));
  expect(call(failure())).toBe("opened");
  at.ms += 1000;
  expect(call(failure("unsupported"))).toBeUndefined();
  expect(health().state).not.toBe("closed");
  at.ms += 30_000;
  expect(call("answered")).toBe("closed");
  expect(open().at(-1)).toBe("opened");
});

test.each([
  ["open circuit", failure(), 1000],
  ["paused upstream", failure("overloaded", 7), 7000],
] as const)(
  "An %s is called again after its pause, although the clock was set back by a day.",
  (_how, error, pauseMs) => {
    const { at, call } = begin();
    at.ms += 86_400_000;
    for (let count = 0; count < 5; count += 1) call(error);
    at.ms -= 86_400_000;
    expect(call("answered")).toBe("refused");
    at.ms += pauseMs;
    expect(call("answered")).not.toBe("refused");
    expect(call("answered")).not.toBe("refused");
  },
);

test("A circuit respects Retry-After to the second and stays closed.", () => {
  const { circuit, at, call, health } = begin();
  for (let count = 0; count < 10; count += 1) {
    expect(call(failure("overloaded", 7))).toBeUndefined();
    expect(health()).toMatchObject({ state: "closed", limitedUntilMs: at.ms + 7000 });
    expect(circuit.refusal(at.ms)).toMatchObject({ failure: "overloaded", retryAfterSeconds: 7 });
    at.ms += 6500;
    expect(circuit.refusal(at.ms)).toMatchObject({ failure: "overloaded", retryAfterSeconds: 1 });
    at.ms += 499;
    expect(call("answered")).toBe("refused");
    at.ms += 1;
  }
  expect(call("answered")).toBeUndefined();
  expect(health().limitedUntilMs).toBeNull();
});

test("Overload without Retry-After opens the circuit, and a refusal repeats it.", () => {
  const { circuit, at, call } = begin();
  for (let count = 0; count < 5; count += 1) call(failure("overloaded", 0));
  expect(call("answered")).toBe("refused");
  expect(circuit.refusal(at.ms)).toMatchObject({ failure: "overloaded", retryAfterSeconds: 1 });
});

test("Five broken streams in a row open the circuit; a complete one resets the count.", () => {
  const { circuit, at, health } = begin();
  const broken = () => {
    circuit.answered(at.ms, at.ms + 1);
    at.ms += 10;
    return circuit.broke("failed", at.ms);
  };
  for (let count = 0; count < 4; count += 1) expect(broken()).toBeUndefined();
  circuit.completed();
  for (let count = 0; count < 4; count += 1) expect(broken()).toBeUndefined();
  expect(broken()).toBe("opened");
  expect(health()).toMatchObject({ state: "open", recent: { successes: 9, failures: 9 } });
});

test("Streams that fail because of the request do not open the circuit.", () => {
  const { circuit, at, health } = begin();
  for (let count = 0; count < 10; count += 1) {
    circuit.answered(at.ms, at.ms + 1);
    expect(circuit.broke("content_filter", at.ms + 1)).toBeUndefined();
  }
  expect(health()).toMatchObject({ state: "closed", lastFailure: null, recent: { failures: 0 } });
});

test("The circuit of a scripted upstream never opens.", () => {
  const { circuit, at, call } = begin({ opens: false });
  for (let count = 0; count < 20; count += 1) {
    expect(call(failure("overloaded", 60))).toBeUndefined();
    expect(circuit.broke("failed", at.ms)).toBeUndefined();
  }
  expect(call("answered")).toBeUndefined();
});

test("An upstream is always called again within 30 s, or when its Retry-After has passed.", () => {
  const kinds = Object.keys(CONSEQUENCES) as UpstreamFailure[];
  const step = fc.record({
    waitMs: fc.integer({ min: 0, max: 40_000 }),
    outcome: fc.constantFrom("answered", "hangs", "breaks", ...kinds),
    retryAfterSeconds: fc.integer({ min: 0, max: 90 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      const circuit = new Circuit(ROUTE, true);
      let nowMs = 0;
      for (const { waitMs, outcome, retryAfterSeconds } of steps) {
        nowMs += waitMs;
        const before = circuit.health(nowMs);
        const isAdmitted = circuit.admits(nowMs);
        const isDue = nowMs >= (before.nextProbeAtMs ?? 0) && before.limitedUntilMs === null;
        expect(isAdmitted).toBe(isDue);
        const { nextProbeAtMs, limitedUntilMs } = circuit.health(nowMs);
        expect(nextProbeAtMs ?? 0).toBeLessThanOrEqual(nowMs + 30_000);
        expect(limitedUntilMs ?? 0).toBeLessThanOrEqual(nowMs + 90_000);
        if (!isAdmitted) {
          expect(circuit.refusal(nowMs).retryAfterSeconds).toBeGreaterThanOrEqual(1);
          continue;
        }
        const startedMs = nowMs;
        nowMs += 5;
        if (outcome === "answered") circuit.answered(startedMs, nowMs);
        else if (outcome === "breaks") {
          circuit.answered(startedMs, nowMs);
          circuit.broke("failed", nowMs);
        } else if (outcome !== "hangs") circuit.failed(failure(outcome, retryAfterSeconds), startedMs, nowMs);
      }
      expect(circuit.admits(nowMs + 90_000)).toBe(true);
      circuit.answered(nowMs + 90_000, nowMs + 90_001);
      expect(circuit.health(nowMs + 90_001).state).toBe("closed");
    }),
  );
});

test("Only the circuits of a provider that is forgotten begin again.", () => {
  const circuits = new Circuits();
  const routeOf = (providerId: string) => ({ providerId, model: "m" }) as Route;
  const of = (providerId: string) => circuits.of(routeOf(providerId), {});
  const [one, other] = [of("one"), of("other")];
  circuits.forget("one");
  expect(of("one")).not.toBe(one);
  expect(of("other")).toBe(other);
});
