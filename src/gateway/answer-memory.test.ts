import { expect, test } from "vitest";
import { readText } from "../providers/http/answer.ts";
import { AnswerMemory } from "./answer-memory.ts";

const MIB = 1024 * 1024;
const PIECE_BYTES = 256 * 1024;
const ANSWER_BYTES = 8 * MIB;
/** A quarter is the share of one organization: the room of an answer that is read, and of one that was read. */
const MEMORY_BYTES = 64 * MIB;

/** Returns the room of an answer, and how to release it. */
function roomOf(memory: AnswerMemory, owner: string) {
  let end = () => {};
  const room = memory.roomFor(owner, (release) => {
    end = release;
  });
  return { ...room, release: () => end() };
}

/** Reads answers of 8 MiB from upstreams that write as fast as they are read. Counts the bytes that were read. */
function answersOf(memory: AnswerMemory, owner: string, count: number) {
  const answers = Array.from({ length: count }, () => {
    const answer = { readBytes: 0, isRead: false, isBroken: false, room: roomOf(memory, owner) };
    const read = async () => {
      if (answer.isBroken) throw new Error("The answer was abandoned");
      if (answer.readBytes === ANSWER_BYTES) return undefined;
      answer.readBytes += PIECE_BYTES;
      return [Buffer.alloc(PIECE_BYTES)];
    };
    const body = { read, finish: () => {}, destroy: () => {} };
    const text = readText(body, { bytesMax: ANSWER_BYTES, room: answer.room }).then(() => {
      answer.isRead = true;
    });
    return Object.assign(answer, { text });
  });
  return {
    answers,
    read: () => answers.filter(({ isRead }) => isRead),
    readBytes: () => answers.reduce((sum, { readBytes }) => sum + readBytes, 0),
  };
}

/** Waits until all that can be read has been read: nothing here waits for more than a turn of the event loop. */
const settle = async () => {
  for (let turn = 0; turn < 100; turn += 1) await new Promise(setImmediate);
};

test("Of the long answers of one organization, those beyond its share wait after 1 MiB until earlier ones are released.", async () => {
  const memory = new AnswerMemory(MEMORY_BYTES);
  const { answers, read, readBytes } = answersOf(memory, "noisy", 60);
  await settle();
  expect(read()).toHaveLength(2);
  expect(readBytes()).toBeLessThanOrEqual(2 * ANSWER_BYTES + 58 * (MIB + PIECE_BYTES));

  const other = answersOf(memory, "quiet", 1);
  await other.answers[0]?.text;

  for (let done = 2; done < 60; done += 1) {
    for (const { room } of read()) room.release();
    await settle();
    expect(read().length).toBeLessThanOrEqual(2 * done);
  }
  expect(read()).toHaveLength(60);
  await Promise.all(answers.map(({ text }) => text));
});

test("A waiting answer that is released ends, and takes no room.", async () => {
  const memory = new AnswerMemory(MEMORY_BYTES);
  const { answers, read } = answersOf(memory, "one", 4);
  await settle();
  const [first, second, third] = answers;
  if (third === undefined) throw new Error("There is no third answer");
  third.isBroken = true;
  third.room.release();
  await expect(third.text).rejects.toThrow("abandoned");
  first?.room.release();
  await settle();
  expect(read()).toEqual([first, second, answers[3]]);
});

test("A room that is reserved again, or released twice, gives back what it had.", async () => {
  const memory = new AnswerMemory(MEMORY_BYTES);
  const room = roomOf(memory, "one");
  for (let attempt = 0; attempt < 10; attempt += 1) await room.reserve(MEMORY_BYTES / 4);
  room.release();
  room.release();
  room.keep(MEMORY_BYTES);
  await room.reserve(MEMORY_BYTES / 4);
  await roomOf(memory, "one").reserve(MEMORY_BYTES / 4);
});

test("An answer of less than 1 MiB needs no room.", async () => {
  const memory = new AnswerMemory(0);
  let isReserved = false;
  const pieces = [[Buffer.from("short")], undefined];
  const body = { read: async () => pieces.shift(), finish: () => {}, destroy: () => {} };
  const room = memory.roomFor("one", () => {
    isReserved = true;
  });
  expect(await readText(body, { room })).toBe("short");
  expect(isReserved).toBe(false);
});
