import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { after, before, describe, test } from "node:test";
import { createOfflineProvider, type OfflineOptions } from "../../../lib/providers/offline/offline.ts";
import { prosePassages } from "../../../lib/providers/offline/passages.ts";
import { rankPassages } from "../../../lib/providers/offline/rank_passages.ts";
import { smallTalk } from "../../../lib/providers/offline/small_talk.ts";
import { significantWords, stemOf } from "../../../lib/providers/offline/words.ts";
import { someOf } from "../../support/seeded_random.ts";
import { configOf, type RunningGateway, withRunningGateway } from "../../support/running_gateway.ts";
import { collect, textOf } from "../support/provider_setup.ts";
import { processorMs } from "../../support/processor_time.ts";

/** A folder that has nothing to do with Postern. */
const GARDEN = {
  "README.md": `# Garden monitor

Measures soil moisture in four beds and waters them when they are dry.

## Installing

Flash the firmware with \`make flash\`, then copy \`config.example.yaml\` to \`config.yaml\` on the base station. The base station
needs Python 3.11 or newer.

## Wiring the sensors

Each probe has three wires: red goes to 3.3 V, black to ground, and yellow to an analogue input. Never connect the red wire to 5 V.

## Watering rules

A bed is watered when its moisture stays below the threshold for ten minutes. The valve closes after three minutes at most.

## Troubleshooting

If a probe reads 0 all the time, its plug is loose or the cable is broken. A probe that reads 1023 has a short circuit.
`,
  "docs/calibration.md": `# Calibration

## Dry value

Hold the probe in the air for one minute and note what \`garden read\` prints. That number is the dry value.

## How often

Calibrate again every spring, and whenever you change a battery.
`,
  "docs/batteries.md": `# Batteries

Two AA cells last about eight months. The base station sends a mail when the voltage falls below 2.4 V.

## Replacing them

Unscrew the lid, swap both cells at once, and press the button for three seconds to restart the node.

## Questions people ask

- How do I replace the batteries?
- Why does a probe read zero?
`,
  "src/valve.py": "MAX_OPEN_SECONDS = 180\n\ndef backoff_delay(attempt):\n    return min(2 ** attempt, 64)\n",
};

/** Questions about Postern's documentation, and the heading that has the answer. */
const ABOUT_POSTERN: readonly (readonly [question: string, heading: string])[] = [
  ["How do I pair a browser?", "Pair a client"],
  ["Where do I put my API key?", "A real model, and how far the agent may go"],
  ["Can a web page reach the gateway?", "Postern"],
  ["How do I install it as a service?", "Service"],
  ["How do I mount it in my own server?", "Mount it in Express or node:http"],
  ["How do I read the memory of a board?", "Boards"],
  ["How do sub-agents work?", "Sub-agents"],
  ["How do I approve a tool call?", "Answering"],
  ["How do schedules work?", "Schedules"],
  ["How do I limit the tokens of a day?", "Limit tokens"],
  ["What license is it under?", "License"],
  ["Does Postern have a sandbox?", "Without a sandbox"],
];

/** Questions about the other folder, and where the answer is. */
const ABOUT_GARDEN: readonly (readonly [question: string, place: string])[] = [
  ["How do I install it?", '"Installing", README.md'],
  ["Which wire goes to ground?", '"Wiring the sensors", README.md'],
  ["When is a bed watered?", '"Watering rules", README.md'],
  ["Why does a probe read zero?", '"Troubleshooting", README.md'],
  ["How do I replace the batteries?", '"Replacing them", docs/batteries.md'],
  ["How long do the batteries last?", '"Batteries", docs/batteries.md'],
  ["What is the dry value?", '"Dry value", docs/calibration.md'],
  ["How often should I calibrate?", '"How often", docs/calibration.md'],
  ["Which Python version do I need?", '"Installing", README.md'],
  ["What does README.md say about wiring?", '"Wiring the sensors", README.md'],
  ["What does backoff_delay do?", "src/valve.py"],
];

async function ask(gateway: RunningGateway, message: string): Promise<string> {
  const reply = await gateway.call("/api/chat", { body: { message } });
  return (await reply.json() as { message: string }).message;
}

describe("natural questions", () => {
  let stop = () => {};
  let gateway: RunningGateway;
  let running: Promise<void>;
  before(async () => {
    const stopped = new Promise<void>((resolve) => (stop = resolve));
    await new Promise<void>((resolve, reject) => {
      running = withRunningGateway({ files: GARDEN }, async (started) => {
        gateway = started;
        resolve();
        await stopped;
      });
      running.catch(reject);
    });
  });
  after(async () => {
    stop();
    await running;
  });

  for (const [question, heading] of someOf(ABOUT_POSTERN, 0)) {
    test(`about Postern, in another folder: ${question}`, async () => {
      const text = await ask(gateway, question);
      const headings = [...text.matchAll(/^From "(.+?)", Postern's .+$/gm)].map(([, found]) => found);
      assert.ok(headings.includes(heading), `${heading} is not among ${headings.join(", ")}: ${text}`);
    });
  }

  for (const [question, place] of someOf(ABOUT_GARDEN, 0)) {
    test(`about the folder: ${question}`, async () => {
      const text = await ask(gateway, question);
      assert.ok(text.startsWith(`From ${place}:`), text);
      assert.doesNotMatch(text, /Questions people ask/, "a question is no answer to itself");
    });
  }

  for (const question of ["Write me a poem about the sea", "Who won the world cup in 2022?", "asdf qwerty"]) {
    test(`what it cannot answer: ${question}`, async () => {
      const text = await ask(gateway, question);
      assert.match(text, /^I cannot answer that: .*documentation\.$/);
      assert.doesNotMatch(text, /\n|\.\s/, "it is one sentence");
    });
  }
});

test("the README's own example question is answered with what it asks about", async () => {
  const root = new URL("../../../", import.meta.url);
  const files: Record<string, string> = {};
  for (const name of ["README.md", "CONTRIBUTING.md"]) files[name] = await readFile(new URL(name, root), "utf8");
  const [, question = ""] = /content: "(What does this project say about .*?)"/.exec(files["README.md"] ?? "") ?? [];
  await withRunningGateway({ files }, async (gateway) => {
    const quotes = (await ask(gateway, question)).split(/^(?=From ")/m).filter((part) => part.startsWith("From "));
    assert.ok(quotes.length > 0);
    for (const quote of quotes) assert.match(quote, /pair/i);
  });
});

test("a word that names the folder is left out, unless the question has no other", () => {
  assert.deepEqual(significantWords("What does this project say about pairing?"), ["pairing"]);
  assert.deepEqual(significantWords("What is this project?"), ["project"]);
  assert.deepEqual(significantWords("Which project files are generated?"), ["project", "generated"]);
});

const NOON = Date.UTC(2026, 10, 22, 12);
for (
  const [question, answer] of [
    ["what is 12 * (3 + 4)?", /= 84$/],
    ["2+2", /= 4$/],
    ["17% of 200", /= 34$/],
    ["-2^2", /= -4$/],
    ["2 ^ 3 ^ 2", /= 512$/],
    ["0.1 + 0.2", /= 0\.3$/],
    ["1,000 times 3", /= 3000$/],
    ["5 x 6", /= 30$/],
    ["10 / 4 =", /= 2\.5$/],
    ["1 / 0", /divides by zero/],
    ["thanks!", /welcome/],
    ["Thank you very much", /welcome/],
    ["Who are you?", /offline assistant/],
    ["What time is it?", /^It is Sunday,? 22 November 2026/],
    ["what's the date today?", /22 November 2026/],
    ["What time does the schedule fire?", undefined],
    ["2026-11-22", undefined],
    ["1.2.3 + 4", undefined],
    ["192.168.0.1/24", undefined],
    ["3 * (4 + ", undefined],
    ["(".repeat(150) + "1", undefined],
    ["what is 5", undefined],
    ["thanks to whom was it written?", undefined],
    ["How many beds are there?", undefined],
  ] as const
) {
  test(`small talk: ${question.slice(0, 40)}`, () => {
    const said = smallTalk(question, { now: () => NOON });
    if (answer === undefined) assert.equal(said, undefined);
    else assert.match(said ?? "", answer);
  });
}

for (
  const [a, b] of [["pairing", "paired"], ["batteries", "battery"], ["calibrate", "calibrated"], ["stopped", "stop"], [
    "three",
    "3",
  ]]
) {
  test(`"${a}" and "${b}" are one word for a search`, () => assert.equal(stemOf(String(a)), stemOf(String(b))));
}
for (const word of ["class", "bus", "string", "need", "red"]) {
  test(`"${word}" is no form of another word`, () => assert.equal(stemOf(word), word));
}

test("a text is cut into paragraphs, items, rows and code under their headings", () => {
  const text = [
    "---",
    "title: x",
    "---",
    "# Top",
    "Intro",
    "goes on.",
    "",
    "- one",
    "  more",
    "- two",
    "",
    "## Of `[a]` and [b](c.md)",
    "",
    "Like this:",
    "",
    "```sh",
    "# no heading",
    "run",
    "```",
    "",
    "Under",
    "=====",
    "",
    "| name | what |",
    "|---|---|",
    "| `a` | does a |",
    "",
    "<!-- hidden -->",
    "    code",
    "",
  ].join("\n");
  const shown = prosePassages(text, { source: "a.md" }).map((
    { heading, line, text, isCode, isRow },
  ) => [heading, line, text.replaceAll("\n", "|"), isCode, isRow]);
  assert.deepEqual(shown, [
    ["Top", 5, "Intro goes on.", false, false],
    ["Top", 8, "- one more", false, false],
    ["Top", 10, "- two", false, false],
    ["Of [a] and b", 14, "Like this:||```sh|# no heading|run|```", false, false],
    ["Under", 26, "`a`: does a", false, true],
    ["Under", 29, "```|code|```", true, false],
  ]);
});

test("how to connect a model is said as long as none is in use, and usage stays an estimate", async () => {
  const say = async (content: string, hasModel: boolean) => {
    const options: OfflineOptions = { now: () => NOON, hasModel: () => hasModel };
    return await collect(createOfflineProvider(options), { messages: [{ role: "user", content }] });
  };
  const connect = /connect|OPENAI_API_KEY/;
  for (const content of ["/help", "hello", "What license is it under?", "asdf qwerty"]) {
    assert.match(textOf(await say(content, false)), connect, content);
    const events = await say(content, true);
    assert.doesNotMatch(textOf(events), connect, content);
    assert.doesNotMatch(textOf(events), /\d+ tokens/);
    const finish = events.at(-1);
    assert.ok(finish?.type === "finish" && finish.usage?.estimated === true);
  }
});

test("in a gateway with a real model the named offline provider gives no hints", async () => {
  const config = {
    provider: { kind: "openai_compatible", base_url: "http://127.0.0.1:9/v1", model: "m" },
    providers: { local: { kind: "offline" } },
  };
  assert.ok(configOf(config));
  await withRunningGateway({ config }, async (gateway) => {
    const body = { model: "local/assistant", messages: [{ role: "user", content: "/help" }] };
    const reply = await (await gateway.call("/v1/chat/completions", { body })).text();
    assert.match(reply, /offline assistant/);
    assert.doesNotMatch(reply, /OPENAI_API_KEY/);
  });
});

for (
  const [what, text] of [
    ["comments that never end", "<!--".repeat(16_000)],
    ["a heading of spaces", `# a${" ".repeat(60_000)}b`],
    ["a heading of links", `# a${"](".repeat(30_000)}`],
    ["a row of spaces", `| a |\n|${" ".repeat(60_000)}x`],
    ["a fence that never ends", "```\n".repeat(16_001)],
    ["an underline", `a\n${"=".repeat(60_000)} x`],
    ["a word without an end", "a.-".repeat(20_000)],
  ] as const
) {
  test(`a hostile file is read at once: ${what}`, () => {
    const started = processorMs();
    const passages = prosePassages(text, { source: "a.md" });
    rankPassages(["pair"], passages);
    // Without the bounds the first ones take from 2 s to 20 s
    assert.ok(processorMs() - started < 1_000);
  });
}

test("a question of a million characters is answered at once", async () => {
  for (
    const content of [
      " hi".repeat(300_000),
      `hi${" ".repeat(1_000_000)}x`,
      "a/".repeat(500_000),
      `2${" ".repeat(1_000_000)}=x`,
    ]
  ) {
    const started = processorMs();
    const options = { now: () => NOON };
    await collect(createOfflineProvider(options), { messages: [{ role: "user", content }] });
    assert.ok(processorMs() - started < 2_000, content.slice(0, 10));
  }
});
