import fc from "fast-check";
import { expect, test } from "vitest";
import { isoTime } from "../api/time.ts";
import type { Route } from "../catalog/model.ts";
import { UpstreamError, type UpstreamFailure } from "../errors.ts";
import { Circuit, Circuits } from "./circuit.ts";
import { CONSEQUENCES } from "./failures.ts";

const ROUTE = { providerId: "up", model: "m" };
const failure = (kind: UpstreamFailure = "failed", retryAfterSeconds?: number) =>
  new UpstreamError(kind, "It failed", retryAfterSeconds === undefined ? {} : { retryAfterSeconds });

/** Makes a circuit with a clock of its own; each call takes a millisecond. */
function begin({ opens = true, isOnlyRoute = false } = {}) {
  const circuit = new Circuit(ROUTE, opens);
  const at = { ms: 1_000_000 };
  const call = (outcome: "answered" | UpstreamError, organizationId = "a") => {
    const startedMs = at.ms;
    if (!circuit.admits(organizationId, startedMs, isOnlyRoute)) return "refused";
    at.ms += 1;
    return outcome === "answered"
      ? circuit.answered(organizationId, startedMs, at.ms)
      : circuit.failed(organizationId, outcome, startedMs, at.ms);
  };
  const open = (organizationId = "a") => Array.from({ length: 5 }, () => call(failure(), organizationId));
  const refusal = (organizationId = "a") => circuit.refusal(organizationId, at.ms, isOnlyRoute);
  return { circuit, at, call, open, refusal, health: () => circuit.health(at.ms).health };
}

test("A circuit opens with the fifth failure in a row.", () => {
  const { at, circuit, call, open, health } = begin();
  for (let count = 0; count < 4; count += 1) expect(call(failure())).toBeUndefined();
  call("answered");
  expect(open()).toEqual([undefined, undefined, undefined, undefined, "opened"]);
  expect(call("answered")).toBe("refused");
  expect(circuit.health(at.ms)).toMatchObject({ provider: "up", route: "up/m" });
  expect(health()).toMatchObject({ recent: { successes: 1, failures: 9 } });
});

test("An organization with another route probes after 1 s, then after 2, 4 and so on up to 10 s, until it is answered.", () => {
  const { at, call, open, refusal, health } = begin();
  open();
  for (const seconds of [1, 2, 4, 8, 10, 10]) {
    expect(refusal().retryAfterSeconds).toBe(seconds);
    at.ms += seconds * 1000 - 1;
    expect(call("answered")).toBe("refused");
    at.ms += 1;
    expect(call(failure())).toBeUndefined();
  }
  at.ms += 10_000;
  expect(call("answered")).toBe("closed");
  expect(health()).toMatchObject({
    state: "closed",
    next_probe_at: null,
    last_success_at: isoTime(at.ms),
    first_byte_ms: 1,
  });
  expect(call("answered")).toBeUndefined();
});

test("An organization without another route probes every second.", () => {
  const { at, call, open } = begin({ isOnlyRoute: true });
  open();
  for (let count = 0; count < 20; count += 1) {
    at.ms += 999;
    expect(call("answered")).toBe("refused");
    at.ms += 1;
    expect(call(failure())).toBeUndefined();
  }
});

test("A probe that hangs delays the next one by the pause only.", () => {
  const { circuit, at, open } = begin();
  open();
  at.ms += 1000;
  expect(circuit.admits("a", at.ms, false)).toBe(true);
  expect(circuit.admits("a", at.ms + 999, false)).toBe(false);
  expect(circuit.admits("a", at.ms + 1000, false)).toBe(true);
});

test("A probe that takes longer than the pause closes the circuit, although later ones were sent.", () => {
  const { circuit, at, open, health } = begin();
  open();
  const startedMs = at.ms + 1000;
  for (let seconds = 0; seconds < 5; seconds += 1)
    expect(circuit.admits("a", startedMs + seconds * 1000, true)).toBe(true);
  expect(circuit.answered("a", startedMs, startedMs + 5000)).toBe("closed");
  expect(health().state).toBe("closed");
});

test("Calls that began before the circuit opened do not change it.", () => {
  const { circuit, at, open, health } = begin();
  const early = at.ms;
  open();
  const { next_probe_at } = health();
  for (let count = 0; count < 20; count += 1) {
    at.ms += 1;
    expect(circuit.failed("a", failure(), early, at.ms)).toBeUndefined();
    expect(circuit.broke("a", "failed", at.ms)).toBeUndefined();
  }
  expect(circuit.answered("a", early, at.ms)).toBeUndefined();
  expect(health()).toMatchObject({ failing_organizations: 1, next_probe_at });
});

test("A failure caused by the request counts as a sign that the upstream works.", () => {
  for (const kind of ["rejected", "context_length", "content_filter"] as const) {
    const { at, call, open, health } = begin();
    for (let count = 0; count < 4; count += 1) call(failure());
    call(failure(kind));
    expect(call(failure())).toBeUndefined();
    open();
    at.ms += 10_000;
    expect(call(failure(kind))).toBe("closed");
    expect(health().last_failure).toMatchObject({ failure: "failed" });
  }
});

test("A request that the wire cannot express does not change the circuit.", () => {
  const { at, call, open, health } = begin();
  for (let count = 0; count < 4; count += 1) call(failure());
  call(failure("unsupported"));
  expect(call(failure())).toBe("opened");
  at.ms += 1000;
  expect(call(failure("unsupported"))).toBeUndefined();
  expect(health().state).toBe("open");
  at.ms += 10_000;
  expect(call("answered")).toBe("closed");
  expect(open().at(-1)).toBe("opened");
});

test("Five broken streams in a row open the circuit; a complete one resets the count.", () => {
  const { circuit, at, health } = begin();
  const broken = () => {
    circuit.answered("a", at.ms, at.ms + 1);
    at.ms += 10;
    return circuit.broke("a", "failed", at.ms);
  };
  for (let count = 0; count < 4; count += 1) expect(broken()).toBeUndefined();
  circuit.completed("a", at.ms);
  for (let count = 0; count < 4; count += 1) expect(broken()).toBeUndefined();
  expect(broken()).toBe("opened");
  expect(health()).toMatchObject({ failing_organizations: 1, recent: { successes: 9, failures: 9 } });
});

test("Streams that fail because of the request do not open the circuit.", () => {
  const { circuit, at, health } = begin();
  for (let count = 0; count < 10; count += 1) {
    circuit.answered("a", at.ms, at.ms + 1);
    expect(circuit.broke("a", "content_filter", at.ms + 1)).toBeUndefined();
  }
  expect(health()).toMatchObject({ state: "closed", last_failure: null, recent: { failures: 0 } });
});

test("The circuit of a scripted upstream never opens.", () => {
  const { circuit, at, call } = begin({ opens: false });
  for (let count = 0; count < 20; count += 1) {
    expect(call(failure("rate_limited", 60))).toBeUndefined();
    expect(call(failure())).toBeUndefined();
    expect(circuit.broke("a", "failed", at.ms)).toBeUndefined();
  }
  expect(call("answered")).toBeUndefined();
});

test("The failures of one organization never refuse another one.", () => {
  const { at, call, open, health } = begin({ isOnlyRoute: true });
  open("noisy");
  // The quiet one has no success that keeps the upstream open: it calls for the first time, or every 11 s.
  for (let count = 0; count < 400; count += 1) {
    at.ms += 100;
    call(failure(), "noisy");
    if (count % 110 === 0) expect(call("answered", "quiet")).toBeUndefined();
  }
  expect(health()).toMatchObject({ state: "partly_open", failing_organizations: 1 });
});

test("The broken streams of one organization never refuse another one.", () => {
  const { circuit, at, call, health } = begin();
  for (let count = 0; count < 5; count += 1) {
    circuit.answered("noisy", at.ms, at.ms + 1);
    at.ms += 10;
    circuit.broke("noisy", "failed", at.ms);
  }
  expect(health()).toMatchObject({ state: "partly_open", failing_organizations: 1 });
  at.ms += 15_000;
  expect(health().state).toBe("open");
  expect(call("answered", "quiet")).toBeUndefined();
  expect(call(failure(), "noisy")).toBeUndefined();
  expect(call("answered", "quiet")).toBeUndefined();
  expect(call("answered", "noisy")).toBe("refused");
});

test("Two organizations that fail close an upstream to all, if nobody had a success for ten seconds.", () => {
  const { at, call, open, health } = begin();
  call("answered", "c");
  open("a");
  open("b");
  expect(health().state).toBe("partly_open");
  expect(call("answered", "d")).toBeUndefined();
  at.ms += 9_999;
  expect(health()).toMatchObject({ state: "partly_open", failing_organizations: 2 });
  expect(call(failure(), "c")).toBeUndefined();
  at.ms += 1;
  expect(health()).toMatchObject({ state: "open", failing_organizations: 2 });
});

test("An upstream that is closed to all admits one call of each further organization after a second, and then its probes.", () => {
  const { at, call, open, health } = begin({ isOnlyRoute: true });
  open("a");
  open("b");
  expect(call(failure(), "c")).toBe("refused");
  at.ms += 1_000;
  expect(call(failure(), "c")).toBeUndefined();
  expect(call(failure(), "c")).toBe("refused");
  expect(call(failure(), "d")).toBeUndefined();
  at.ms += 2_000;
  expect(call("answered", "c")).toBeUndefined();
  expect(health()).toMatchObject({ state: "partly_open", failing_organizations: 2 });
  expect(call("answered", "c")).toBeUndefined();
  expect(call("answered", "d")).toBeUndefined();
});

test("Organizations that take every probe of theirs do not delay the probe of another one.", () => {
  const { at, call, open } = begin({ isOnlyRoute: true });
  const noisy = ["a", "b", "c"];
  call("answered");
  for (const organizationId of [...noisy, "quiet"]) open(organizationId);
  const openedAtMs = at.ms;
  while (call("answered", "quiet") === "refused") {
    for (const organizationId of noisy) call(failure(), organizationId);
    at.ms += 50;
  }
  // Four organizations share one probe per second.
  expect(at.ms - openedAtMs).toBeLessThan(4_100);
});

test("Many organizations that fail send about one probe per second together, and each at least one in ten seconds.", () => {
  const { at, call, open } = begin({ isOnlyRoute: true });
  const organizations = Array.from({ length: 8 }, (_, index) => `org ${index}`);
  call("answered");
  for (const organizationId of organizations) open(organizationId);
  let probes = 0;
  for (let count = 0; count < 600; count += 1) {
    at.ms += 100;
    for (const organizationId of organizations) if (call(failure(), organizationId) !== "refused") probes += 1;
  }
  expect(probes).toBeGreaterThan(50);
  expect(probes).toBeLessThan(65);
});

test("The circuit of an organization that does not call any more closes by itself after a minute.", () => {
  const { at, open, call, health } = begin();
  open("a");
  open("b");
  at.ms += 30_000;
  expect(call(failure(), "b")).toBeUndefined();
  at.ms += 30_000;
  expect(health()).toMatchObject({ state: "open", failing_organizations: 1 });
  at.ms += 30_000;
  expect(health()).toMatchObject({ state: "closed", failing_organizations: 0, next_probe_at: null });
});

test("A pause lasts as long as the upstream states, at most a minute, for every organization and without a probe.", () => {
  for (const [stated, seconds] of [
    [7, 7],
    [60, 60],
    [99_999_999, 60],
  ] as const) {
    const { circuit, at, call, refusal, health } = begin({ isOnlyRoute: true });
    expect(call(failure("rate_limited", stated))).toBeUndefined();
    const pausedAtMs = at.ms;
    expect(health()).toMatchObject({ state: "closed", limited_until: isoTime(pausedAtMs + seconds * 1000) });
    for (const organizationId of ["a", "b"]) {
      expect(refusal(organizationId)).toMatchObject({ failure: "rate_limited", retryAfterSeconds: seconds });
      for (let ms = 0; ms < seconds * 1000; ms += 250) {
        expect(circuit.admits(organizationId, pausedAtMs + ms, true)).toBe(false);
      }
    }
    at.ms = pausedAtMs + seconds * 1000 - 1;
    expect(refusal()).toMatchObject({ retryAfterSeconds: 1 });
    at.ms += 1;
    expect(call("answered", "b")).toBeUndefined();
    expect(health().limited_until).toBeNull();
  }
});

test("Only a rate limit with a time begins a pause; any other failure counts for the organization alone.", () => {
  for (const error of [failure("rate_limited"), failure("rate_limited", 0), failure("overloaded", 3600)]) {
    const { call, health } = begin();
    for (let count = 0; count < 5; count += 1) call(error, "a");
    expect(call("answered", "a")).toBe("refused");
    expect(health()).toMatchObject({ limited_until: null, failing_organizations: 1 });
    expect(call("answered", "b")).toBeUndefined();
  }
});

test("A resumed upstream is called again at once, by every organization.", () => {
  const { circuit, call, open, health } = begin();
  open("a");
  call(failure("rate_limited", 60), "b");
  circuit.resume();
  expect(health()).toMatchObject({ state: "closed", limited_until: null, recent: { failures: 6 } });
  expect(call("answered", "a")).toBeUndefined();
  expect(call("answered", "b")).toBeUndefined();
});

test("A pause and an open circuit end after the clock was set back by a day.", () => {
  const { at, call, open } = begin();
  at.ms += 86_400_000;
  open();
  call(failure("rate_limited", 60), "b");
  at.ms -= 86_400_000;
  expect(call("answered", "b")).toBe("refused");
  at.ms += 60_000;
  for (const organizationId of ["a", "b"]) expect(call("answered", organizationId)).not.toBe("refused");
});

test("Of 100,000 organizations that fail, an upstream remembers 10,000, so that their circuits take little memory.", () => {
  const { at, circuit, health } = begin();
  for (let count = 0; count < 500_000; count += 1) {
    if (count % 1_000 === 0) at.ms += 1;
    circuit.failed(`org ${Math.floor(count / 5)}`, failure(), at.ms, at.ms);
  }
  expect(health().failing_organizations).toBe(10_000);
});

test("An upstream is called again within ten seconds, or when its pause of at most a minute is over.", () => {
  const kinds = Object.keys(CONSEQUENCES) as UpstreamFailure[];
  const step = fc.record({
    waitMs: fc.integer({ min: 0, max: 20_000 }),
    organizationId: fc.constantFrom("a", "b", "c"),
    isOnlyRoute: fc.boolean(),
    outcome: fc.constantFrom("answered", "hangs", "breaks", ...kinds),
    retryAfterSeconds: fc.integer({ min: 0, max: 90 }),
  });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 80 }), (steps) => {
      const circuit = new Circuit(ROUTE, true);
      let nowMs = 0;
      for (const { waitMs, organizationId, isOnlyRoute, outcome, retryAfterSeconds } of steps) {
        nowMs += waitMs;
        const { state, limited_until: limitedUntil } = circuit.health(nowMs).health;
        expect(Date.parse(limitedUntil ?? "1970")).toBeLessThanOrEqual(nowMs + 60_000);
        if (!circuit.admits(organizationId, nowMs, isOnlyRoute)) {
          expect(state !== "closed" || limitedUntil !== null).toBe(true);
          const { retryAfterSeconds: seconds = 0 } = circuit.refusal(organizationId, nowMs, isOnlyRoute);
          expect(seconds).toBeGreaterThanOrEqual(1);
          expect(seconds).toBeLessThanOrEqual(limitedUntil === null ? 10 : 60);
          continue;
        }
        expect(limitedUntil).toBeNull();
        const startedMs = nowMs;
        nowMs += 5;
        if (outcome === "answered") circuit.answered(organizationId, startedMs, nowMs);
        else if (outcome === "breaks") {
          circuit.answered(organizationId, startedMs, nowMs);
          circuit.broke(organizationId, "failed", nowMs);
        } else if (outcome !== "hangs") {
          circuit.failed(organizationId, failure(outcome, retryAfterSeconds), startedMs, nowMs);
        }
      }
      for (const organizationId of ["a", "b", "c"]) {
        expect(circuit.admits(organizationId, nowMs + 60_000, false)).toBe(true);
        circuit.answered(organizationId, nowMs + 60_000, nowMs + 60_001);
      }
      expect(circuit.health(nowMs + 60_001).health.state).toBe("closed");
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
