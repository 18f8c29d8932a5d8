import assert from "node:assert/strict";
import { test } from "node:test";
import { type LineReader, TerminalLineReader } from "../../../cli/terminal/line_reader.ts";

const PASTE = (text: string) => `\x1b[200~${text}\x1b[201~`;

interface Fake {
  readonly reader: LineReader;
  /** Types keys, and lets them arrive */
  readonly type: (...chunks: readonly (string | Uint8Array)[]) => Promise<void>;
  readonly end: () => Promise<void>;
  readonly shown: () => string;
  readonly isRaw: () => boolean;
}

const turns = async () => {
  for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
};

function withReader(use: (fake: Fake) => Promise<void>, history: readonly string[] = []) {
  return async () => {
    let listener: (keys: Uint8Array | undefined) => void = () => {};
    let shown = "";
    let raw = false;
    const reader = new TerminalLineReader({
      onKeys(next) {
        listener = next;
        return () => (listener = () => {});
      },
      setRawMode: (on) => (raw = on),
      write: (text) => (shown += text),
      columns: () => 80,
      onResize: () => () => {},
    }, history);
    try {
      await use({
        reader,
        async type(...chunks) {
          for (const chunk of chunks) listener(Buffer.from(chunk));
          await turns();
        },
        async end() {
          listener(undefined);
          await turns();
        },
        shown: () => shown,
        isRaw: () => raw,
      });
    } finally {
      reader.close();
    }
    assert.equal(raw, false, "the terminal is given back");
    assert.ok(shown.endsWith("\x1b[?2004l"), "and pastes are plain again");
  };
}

test(
  "lines that come at once are all given, one after the other",
  withReader(async ({ reader, type, isRaw }) => {
    assert.equal(isRaw(), true);
    const first = reader.read("> ");
    await type("one\rtwo\rthree\r");
    assert.deepEqual([await first, await reader.read("> "), await reader.read("> ")], ["one", "two", "three"]);
  }),
);

test(
  "what is typed while nothing is read is not shown, and is in the next line",
  withReader(async ({ reader, type, shown }) => {
    await type("early bird");
    assert.doesNotMatch(shown(), /early/);
    const line = reader.read("> ");
    await type("s\r");
    assert.equal(await line, "early birds");
    assert.match(shown(), /> early bird/);
  }),
);

test(
  "a paste of several lines is one piece, wherever its bytes are cut",
  withReader(async ({ reader, type, shown }) => {
    const bytes = Buffer.from(`say: ${PASTE("Grüße\r\nzwei\tdrei\n\x1b[31mrot")} please\r`);
    const line = reader.read("> ");
    await type(...Array.from(bytes, (byte) => Uint8Array.of(byte)));
    assert.equal(await line, "say: Grüße\nzwei\tdrei\n\x1b[31mrot please");
    assert.match(shown(), /\[Pasted text #1: 3 lines\]/);
    assert.ok(!shown().includes("\x1b[31m"), "and what is in it does not drive the terminal");
  }),
);

test(
  "a short paste is in the line and can be edited; Enter sends it, not its own newline",
  withReader(async ({ reader, type }) => {
    const line = reader.read("> ");
    await type(PASTE("hello"), "\x7f!", "\r");
    assert.equal(await line, "hell!");
    const long = reader.read("> ");
    await type(PASTE("x".repeat(600)), "\r");
    assert.equal(await long, "x".repeat(600));
  }),
);

test(
  "a reader tells what was pasted with an @, from what was typed",
  withReader(async ({ reader, type }) => {
    const line = reader.read("> ");
    await type("@typed.txt ", PASTE("plain"), PASTE("see @short.txt"), PASTE("see\n@long.txt\n"), "\r");
    assert.equal(await line, "@typed.txt plainsee @short.txtsee\n@long.txt\n");
    assert.deepEqual(reader.pastes(), ["see @short.txt", "see\n@long.txt\n"]);
  }),
);

test(
  "a question is answered by what is typed after it alone",
  withReader(async ({ reader, type, shown }) => {
    await type("y\ry\rhalf a li");
    const answer = reader.ask("Run this call? ");
    await type(PASTE("y"), PASTE("y\n"));
    await type("n\r");
    assert.equal(await answer, "n");
    assert.match(shown(), /Run this call\? /);
    assert.deepEqual([await reader.read("> "), await reader.read("> ")], ["y", "y"], "they are messages still");
    const line = reader.read("> ");
    await type("ne\r");
    assert.equal(await line, "half a line");
  }),
);

test(
  "an answer is no message of the history, and earlier chats are",
  withReader(async ({ reader, type }) => {
    const answer = reader.ask("? ");
    await type("never\r");
    assert.equal(await answer, "never");
    const line = reader.read("> ");
    await type("\x1b[A\r");
    assert.equal(await line, "from the chat before");
  }, ["from the chat before", "older"]),
);

test(
  "Ctrl-C empties a line, ends reading on an empty one, and interrupts what is at work",
  withReader(async ({ reader, type, shown }) => {
    const line = reader.read("> ");
    await type("oops\x03");
    await type("fine\r");
    assert.equal(await line, "fine");
    let interrupts = 0;
    const stop = reader.onInterrupt(() => interrupts++);
    await type("waits\r\x03");
    assert.equal(interrupts, 1);
    assert.match(shown(), /\nLines that waited are left out: 1\n/);
    stop();
    const next = reader.read("> ");
    await type("\x03");
    assert.equal(await next, undefined, "the line that waited was left out");
    const asked = reader.ask("? ");
    await type("y\x03");
    assert.equal(await asked, undefined);
  }),
);

test(
  "Ctrl-D and the end of the terminal end reading, after the lines that came before",
  withReader(async ({ reader, type, end }) => {
    const answer = reader.read("> ");
    await type("one\rtwo\r\x04");
    assert.deepEqual([await answer, await reader.read("> "), await reader.read("> ")], ["one", "two", undefined]);
    assert.equal(await reader.ask("? "), undefined);
    await end();
  }),
);

test(
  "a terminal that goes while a question stands leaves it unanswered",
  withReader(async ({ reader, end }) => {
    const answer = reader.ask("? ");
    await end();
    assert.equal(await answer, undefined);
  }),
);

test(
  "over 1,000 lines that wait the rest is left out, and that is said",
  withReader(async ({ reader, type, shown }) => {
    await type("x\r".repeat(1_002));
    assert.equal(await reader.read("> "), "x");
    assert.match(shown(), /More than 1000 lines waited: 2 are left out/);
  }),
);
