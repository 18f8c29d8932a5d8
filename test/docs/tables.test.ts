import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { VERBS } from "../../cli/verbs.ts";
import { ROUTES } from "../../handlers/routes.ts";
import { FRAMES, parseFrame } from "../../handlers/websocket/frames.ts";
import { ERROR_CODES, isErrorCode } from "../../lib/base/errors.ts";
import { agentEventSchema } from "../../lib/base/records/agent_event.ts";
import { BUILTIN_TOOLS } from "../../lib/tools/builtin.ts";
import { llmsText } from "../../scripts/llms_text.ts";
import { PROJECT_ROOT } from "../support/source_files.ts";
import { parsePage } from "./support/read_pages.ts";

const read = (path: string) => readFileSync(join(PROJECT_ROOT, path), "utf8");
/** Texts in backticks in the first column of the tables of a page, or of one of its sections, in order. */
const firstColumn = (page: string, heading?: string) => {
  const text = read(page);
  const section = heading === undefined ? text : text.split(`\n## ${heading}\n`)[1]?.split("\n## ")[0] ?? "";
  const rows = section.split("\n").filter((line) => line.startsWith("| `"));
  return rows.flatMap((row) => [...(row.split(" | ")[0] ?? "").matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? ""));
};

test("the routes of docs/http.md are the gateway's, no more and no less", () => {
  const routes = ROUTES.map(({ method, path }) => `${method} ${path.replace("+", "")}`);
  assert.deepEqual(firstColumn("docs/http.md", "Routes").sort(), routes.sort());
});

test("the commands of docs/commands.md are the program's, no more and no less", () => {
  assert.deepEqual(
    firstColumn("docs/commands.md").filter((name) => name.startsWith("postern")).sort(),
    Object.keys(VERBS).map((verb) => `postern ${verb}`).sort(),
  );
});

test("the tools of docs/tools.md are the built-in ones, no more and no less", () => {
  assert.deepEqual(firstColumn("docs/tools.md", "Tools").sort(), BUILTIN_TOOLS.map(({ name }) => name).sort());
});

test("the frames and events of docs/websocket.md are the socket's, no more and no less", () => {
  assert.deepEqual(firstColumn("docs/websocket.md", "Frames of the client").sort(), Object.keys(FRAMES).sort());
  const events = agentEventSchema.options.map(({ entries }) => entries.type.literal);
  assert.deepEqual(firstColumn("docs/websocket.md", "Events").sort(), events.sort());
});

test("the codes of docs/http.md are the catalogue's, row by row", () => {
  const rows = Object.entries(ERROR_CODES).map(([code, { status, type, retry, meaning }]) => {
    const repeat = retry === undefined ? " " : retry === "never" ? " no " : ` after ${retry} s `;
    return `| ${status} | \`${code}\` | \`${type}\` |${repeat}| ${meaning} |`;
  });
  const section = read("docs/http.md").split("\n### Error codes\n")[1]?.split("\n### ")[0] ?? "";
  assert.deepEqual(section.split("\n").filter((line) => /^\| \d/.test(line)), rows);
});

test("the codes of docs/troubleshooting.md have the statuses of the catalogue", () => {
  const rows = [...read("docs/troubleshooting.md").matchAll(/^\| (\d{3}) `(\w+)`/gm)];
  assert.ok(rows.length > 15, `${rows.length} rows were found`);
  for (const [row, status, code = ""] of rows) {
    assert.ok(isErrorCode(code) && ERROR_CODES[code].status === Number(status), row);
  }
});

test("the frames that docs/websocket.md shows are read, or are sent", () => {
  const { blocks } = parsePage("docs/websocket.md", read("docs/websocket.md"));
  for (const line of blocks.filter(({ language }) => language === "json").flatMap(({ text }) => text.split("\n"))) {
    const { type } = JSON.parse(line);
    if (["accepted", "delta", "done"].includes(type)) continue;
    const parsed = parseFrame(line);
    assert.ok(parsed.ok && parsed.frame.type === type, line);
    // An unknown type would be a message of the whole text
    assert.ok(parsed.frame.type !== "message" || parsed.frame.text !== line, line);
  }
});

test("the README has at most 120 lines, and its picture at most 60 kB", () => {
  assert.ok(read("README.md").trimEnd().split("\n").length <= 120);
  assert.ok(read("README.md").includes("](docs/dashboard.png)"));
  const picture = readFileSync(join(PROJECT_ROOT, "docs/dashboard.png"));
  assert.equal(picture.subarray(1, 4).toString(), "PNG");
  assert.ok(picture.length <= 60_000, `${picture.length} bytes`);
});

test("docs/llms.txt lists the pages that are there, with what they promise", () => {
  assert.equal(read("docs/llms.txt"), llmsText(), "rebuild it: npm run docs");
});

test("a word of docs/glossary.md is the term that the project uses", () => {
  const words = [...read("docs/glossary.md").matchAll(/^\| \[(.+?)\]/gm)].map((match) => match[1] ?? "");
  const terms = [...read(join("docs/design", "glossary.md")).matchAll(/^\| (.+?) \|/gm)].map((match) => match[1] ?? "");
  // Words for users alone
  const others = ["outside content", "gateway", "MCP server"];
  assert.ok(words.length > 20, `${words.length} words were found`);
  assert.deepEqual(words.filter((word) => ![...terms, ...others].includes(word)), []);
});

test("the pages are in the package, for npm and for Deno", () => {
  const { files } = JSON.parse(read("package.json")) as { files: readonly string[] };
  const { publish } = JSON.parse(read("deno.json")) as { publish: { include: readonly string[] } };
  for (const list of [files, publish.include]) assert.ok(list.includes("docs") && list.includes("README.md"));
});

test("the README's two commands exist, come first, and CI runs the second one before all other tests", () => {
  const blocks = [...read("README.md").matchAll(/```sh\n([\s\S]*?)```/g)].map((match) => match[1]?.trim());
  assert.deepEqual(blocks.slice(0, 2), ["npm ci && npm start", "npm ci && npm test"]);
  const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };
  assert.ok("start" in scripts && "test" in scripts);
  const last = read(".ci/run").trim().split("\n").slice(-3);
  assert.deepEqual(last, [blocks[1], "npm run test:system", "npm run test:deno"]);
});
