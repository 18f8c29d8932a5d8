import type { ServerResponse } from "node:http";
import { startFakeServer } from "../../../fixtures/upstream/fake_server.ts";
import { toDelta, toSse, USAGE_CHUNK } from "../../../fixtures/upstream/openai_upstream.ts";

interface Message {
  readonly role: string;
  readonly content: unknown;
}

/** Text of a reply, or the input of each call by the tool's name */
type Turn = string | readonly (readonly [tool: string, input: Readonly<Record<string, string>>])[];

const MODEL = "qwen3:8b";
/** Answers of an Ollama with one model, by path */
const LISTS: Readonly<Record<string, unknown>> = {
  "/api/version": { version: "0.12.9" },
  "/v1/models": { object: "list", data: [{ id: MODEL, object: "model", created: 1761000000, owned_by: "library" }] },
};
const NOTES = ["inbox.md", "garden.md", "people.md"];
const FIRST_PATCH = `*** Begin Patch
*** Update File: inbox.md
 # Inbox
-
-- Sow the beans after 15 May
-- Rosa wants her ladder back
*** Update File: garden.md
 - Water the beds on Tuesday and Friday
+- Sow the beans after 15 May
*** Update File: people.md
-- Rosa: neighbour
+- Rosa: neighbour, wants her ladder back
*** End Patch
`;
const LATER_PATCH = `*** Begin Patch
*** Update File: inbox.md
 # Inbox
-
-- The peas want no water in May
*** Update File: garden.md
 - Sow the beans after 15 May
+- The peas want no water in May
*** End Patch
`;

/** Runs `use` with the environment of a machine that has an Ollama, whose model does what the tutorial asks for. */
export async function withTutorialModel(use: (environment: Readonly<Record<string, string>>) => Promise<void>) {
  const server = await startFakeServer(({ path, json }, response) => {
    if (path === "/v1/chat/completions") return reply(response, answer(json as { readonly messages: Message[] }));
    const list = LISTS[path];
    response.writeHead(list === undefined ? 404 : 200, { "content-type": "application/json" });
    response.end(JSON.stringify(list ?? "404 page not found"));
  });
  const git = { NAME: "Ada", EMAIL: "ada@example.org" };
  const author = Object.entries(git).flatMap(([key, value]) =>
    ["AUTHOR", "COMMITTER"].map((who) => [`GIT_${who}_${key}`, value])
  );
  // The kind that init finds and writes: the commands of a test look for no server by themselves
  const environment = { OLLAMA_HOST: server.origin, POSTERN__PROVIDER__KIND: "ollama", ...Object.fromEntries(author) };
  await use(environment).finally(() => server.close());
}

function answer({ messages }: { readonly messages: readonly Message[] }): Turn {
  const asked = messages.findLastIndex(({ role }) => role === "user");
  const results = messages.slice(asked + 1).filter(({ role }) => role === "tool").map(({ content }) => `${content}`);
  if (!JSON.stringify(messages[asked]).includes("Sort my inbox")) {
    return results.length === 0
      ? [["read_file", { path: "inbox.md" }]]
      : "Two things: sow the beans after 15 May, and give Rosa her ladder back.";
  }
  if (results.length === 0) return NOTES.map((path) => ["read_file", { path }]);
  if (results.length > NOTES.length) return `Sorted: ${results.at(-1)}`;
  return [["apply_patch", { patch: results[0]?.includes("ladder") === true ? FIRST_PATCH : LATER_PATCH }]];
}

function reply(response: ServerResponse, turn: Turn): void {
  const delta = typeof turn === "string"
    ? { content: turn }
    : { tool_calls: turn.map(([name, input], index) => ({ index, ...callOf(name, input) })) };
  const chunks = [
    toDelta({ role: "assistant", ...delta }),
    toDelta({}, typeof turn === "string" ? "stop" : "tool_calls"),
  ];
  response.writeHead(200, { "content-type": "text/event-stream" });
  response.end(`${[...chunks, USAGE_CHUNK].map(toSse).join("")}data: [DONE]\n\n`);
}

function callOf(name: string, input: Readonly<Record<string, string>>) {
  const id = `call_${name}_${input["path"] ?? "all"}`;
  return { id, type: "function", function: { name, arguments: JSON.stringify(input) } };
}
