import { NO_DIGEST } from "./manifest.ts";

/** Kinds of plugins that `postern plugin new` writes. */
export const SCAFFOLD_KINDS = [
  "wasm-rust",
  "wasm-go",
  "wasm-assemblyscript",
  "process-node",
  "process-python",
  "ffi-c",
] as const;
/** Kind of a plugin that `postern plugin new` writes. */
export type ScaffoldKind = typeof SCAFFOLD_KINDS[number];

/** Names in the files of a scaffold. */
export interface ScaffoldNames {
  /** Id of the plugin, as `word-count` */
  readonly id: string;
  /** Name of its tool, and of its C function, as `word_count` */
  readonly tool: string;
}

/** Texts of files by their paths in the plugin's folder. */
export type ScaffoldFiles = Readonly<Record<string, string>>;

/** Makes the files of a new plugin. */
export type MakeScaffold = (names: ScaffoldNames) => ScaffoldFiles;

/** Returns the text of a manifest with one tool. @param part fields of the kind of plugin */
export function scaffoldManifest({ id, tool }: ScaffoldNames, part: Readonly<Record<string, unknown>>): string {
  const document = {
    id,
    version: "0.1.0",
    description: "Says what it was given",
    ...part,
    tools: [{
      name: tool,
      description: "Returns the text in capital letters.",
      input_schema: {
        type: "object",
        properties: { text: { type: "string", description: "Text to write in capital letters" } },
        required: ["text"],
        additionalProperties: false,
      },
    }],
    capabilities: { workspace: "none", hosts: [] },
  };
  return `${JSON.stringify(document, null, 2)}\n`;
}

/** Returns the README of a plugin. @param options.build commands that build it, none where nothing is built */
export function scaffoldReadme(
  { id, tool }: ScaffoldNames,
  { build = [], allow, needs, notes }: {
    readonly build?: readonly string[];
    /** Key that allows plugins of this kind */
    readonly allow?: string;
    readonly needs: string;
    readonly notes: readonly string[];
  },
): string {
  const allowed = allow === undefined ? [] : [`postern config set ${allow} true`];
  const main = [...build, ...allowed, `postern plugin test --manifest plugin.json --execute '{"text": "hello"}'`];
  return `# ${id}

A plugin of Postern with the tool \`${tool}\`. It needs ${needs}.

\`\`\`sh
${main.join("\n")}
postern plugin package --manifest plugin.json
postern plugin add --package ${id}-0.1.0.tar
postern plugin enable ${id}
\`\`\`

While you work on it, \`postern plugin dev .\` serves each change at once.

${notes.join("\n\n")}
`;
}

/** Returns the text of the manifest of a WASM plugin. */
export function wasmManifest(names: ScaffoldNames): string {
  return scaffoldManifest(names, { kind: "wasm", wasm: { file: "plugin.wasm", sha256: NO_DIGEST } });
}

/**
 * Returns the notes of a README about what a module may import.
 * @param pdk what speaks to the host, as `The crate x`
 * @param file file of the plugin with the functions of the workspace
 */
export const wasmNotes = (pdk: string, file: string): readonly string[] => [
  `${pdk} is the interface to the host. A call is JSON, \`{"tool", "input", "context"}\`; the answer is JSON, \`{"output", "is_error"?, "data"?}\`.`,
  `\`${file}\` has the functions of the workspace. Each takes and returns the offset of JSON in Extism's memory:

| function of \`extism:host/user\` | request | answer |
|---|---|---|
| \`workspace_read(i64) -> i64\` | \`{"path", "encoding"?}\` | \`{"content"}\` |
| \`workspace_list(i64) -> i64\` | \`{"path"}\` | \`{"entries": [{"path", "size"}], "truncated"}\` |
| \`workspace_write(i64) -> i64\` | \`{"path", "content", "encoding"?}\` | \`{"bytes"}\` |

\`encoding\` is \`utf8\` (the default) or \`base64\`. Instead of an answer there may be \`{"error": {"code", "message"}}\`.`,
  "`capabilities` in `plugin.json` says what the module gets: `workspace` is `none`, `read` or `write`, and `hosts` lists what it may reach by " +
  "Extism's HTTP. A module that imports more is not loaded. A capability counts only where the configuration grants it too:",
  "```sh\npostern config set runtime.wasm.allow_workspace_read true\npostern config set runtime.wasm.allow_workspace_write true\n" +
  `postern config set runtime.wasm.allowed_hosts '["api.example.com"]'\n\`\`\``,
];
