import { type CommandContext, CommandError, defineCliCommand, UsageError } from "../command.ts";
import type { MemoryRecord } from "../../lib/memory/memory.ts";
import { withGateway } from "../reach_gateway.ts";
import { MAX_PRINTED, printPage } from "../terminal/print_page.ts";
import { useTool } from "./tools.ts";

const NAMESPACE = {
  type: "string",
  valueHint: "name",
  description: "Namespace of the memory (default: default)",
} as const;
const KEY = { type: "positional", required: true, description: "Key of the memory, from postern memory list" } as const;
const MAX_TEXT = 60;

/** Command `postern memory list`: the newest memories. */
export const memoryListCommand = defineCliCommand({
  args: { namespace: { ...NAMESPACE, description: "Only this namespace (default: all)" } },
  example: "postern memory list",
  run: (context, { namespace }) => listMemories(context, { namespace }),
});

/** Command `postern memory search <words>`: memories with these words, best first. */
export const memorySearchCommand = defineCliCommand({
  args: {
    "...words": { type: "positional", required: true, description: "Words that are looked for in key, value and tags" },
    namespace: { ...NAMESPACE, description: "Only this namespace (default: all)" },
  },
  example: "postern memory search coffee",
  run: (context, { namespace, _: words }) => listMemories(context, { query: words.join(" "), namespace }),
});

/** Command `postern memory show <key>`: one memory, whole. */
export const memoryShowCommand = defineCliCommand({
  args: { key: KEY, namespace: NAMESPACE },
  example: "postern memory show coffee",
  run: (context, input) =>
    withGateway(
      context,
      (gateway) =>
        useTool(context, gateway, {
          tool: "memory_recall",
          input: given(input),
          toText: (data) => {
            const [found] = (data as { readonly memories: readonly MemoryRecord[] }).memories; // as tests hold
            if (found === undefined) {
              throw new CommandError(`Cannot show "${input.key}": no memory has this key; see postern memory list`);
            }
            return found.value;
          },
        }),
    ),
});

/** Command `postern memory add <key> <text>`: remembers a text, in place of an earlier one of this key. */
export const memoryAddCommand = defineCliCommand({
  args: {
    key: { ...KEY, description: "Key to find it by; an earlier text of this key is replaced" },
    "...text": {
      type: "positional",
      required: false,
      description: "What to remember; without it standard input is read",
    },
    namespace: NAMESPACE,
    tags: { type: "string", valueHint: "list", description: "Words to find it by, joined by commas" },
  },
  example: 'postern memory add coffee "Black, no sugar"',
  async run(context, { tags, _: words, ...args }) {
    const value = words.length > 1 ? words.slice(1).join(" ") : await context.io.readStdin();
    if (value === undefined) throw new UsageError("Cannot add a memory: give its text, or pipe it in");
    const input = {
      ...given(args),
      value,
      ...(tags === undefined ? {} : { tags: tags.split(",").map((tag) => tag.trim()) }),
    };
    return await withGateway(context, (gateway) => useTool(context, gateway, { tool: "memory_store", input }));
  },
});

/** Command `postern memory remove <key>`: forgets one memory. */
export const memoryRemoveCommand = defineCliCommand({
  args: { key: KEY, namespace: NAMESPACE },
  example: "postern memory remove coffee",
  run: (context, { key, namespace }) =>
    withGateway(context, async (gateway) => {
      context.print(await gateway.call("DELETE /v1/memory", { query: { key, namespace } }), `Forgot ${key}`);
    }),
});

function listMemories(context: CommandContext, wanted: Given): Promise<number> {
  return withGateway(
    context,
    (gateway) =>
      printPage(context, gateway.call("GET /v1/memory", { query: { ...given(wanted), limit: MAX_PRINTED } }), {
        heads: ["KEY", "NAMESPACE", "TAGS", "CHANGED", "TEXT"],
        toRow: (
          { key, namespace, tags, updated_at: changed, value },
        ) => [key, namespace, tags.join(","), changed, value.slice(0, MAX_TEXT)],
        none: wanted.query === undefined ? "Nothing is remembered" : "No memory matches",
      }),
  );
}

/** Fields of a query, or of a tool's input. */
interface Given {
  readonly key?: string | undefined;
  readonly namespace?: string | undefined;
  readonly query?: string | undefined;
}

/** Leaves out what was not given. */
function given({ key, namespace, query }: Given): Record<string, string> {
  return { ...(key && { key }), ...(namespace && { namespace }), ...(query && { query }) };
}
