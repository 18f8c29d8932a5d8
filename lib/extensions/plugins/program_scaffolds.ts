import { MANIFEST_NAME, NO_DIGEST } from "./manifest.ts";
import { type MakeScaffold, scaffoldManifest as manifest, scaffoldReadme as readme } from "./scaffold_files.ts";

const LINES =
  'A call is one line of JSON on the input, `{"tool", "input", "context"}`; the answer is one line on the output, `{"output", "is_error"?, "data"?}`. ' +
  "Everything else goes to the error output, which is shown when a call fails.";
const RIGHTS =
  "`capabilities` in `plugin.json` says what the program may see: `workspace` is `none`, `read` or `write`, and `hosts` lists what it may reach. " +
  "Where bubblewrap works it sees nothing else.";

/** Files of new plugins that are programs or libraries, by their kinds. */
export const PROGRAM_SCAFFOLDS: Readonly<Record<"process-node" | "process-python" | "ffi-c", MakeScaffold>> = {
  "process-node": (names) => ({
    [MANIFEST_NAME]: manifest(names, { kind: "process", process: { command: "node", args: ["main.mjs"] } }),
    "README.md": readme(names, { allow: "plugins.allow_process", needs: "Node", notes: [LINES, RIGHTS] }),
    "main.mjs": `import { createInterface } from "node:readline";

const tools = {
  ${names.tool}: ({ text }) => ({ output: text.toUpperCase() }),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { tool, input } = JSON.parse(line);
  console.log(JSON.stringify(await tools[tool](input)));
}
`,
  }),
  "process-python": (names) => ({
    [MANIFEST_NAME]: manifest(names, { kind: "process", process: { command: "python3", args: ["main.py"] } }),
    "README.md": readme(names, { allow: "plugins.allow_process", needs: "Python 3", notes: [LINES, RIGHTS] }),
    "main.py": `import json
import sys


def ${names.tool}(text):
    return {"output": text.upper()}


TOOLS = {"${names.tool}": ${names.tool}}

for line in sys.stdin:
    call = json.loads(line)
    print(json.dumps(TOOLS[call["tool"]](**call["input"])), flush=True)
`,
  }),
  "ffi-c": (names) => ({
    [MANIFEST_NAME]: manifest(names, {
      kind: "ffi",
      ffi: { library: "plugin.so", sha256: NO_DIGEST, symbol: names.tool },
    }),
    "README.md": readme(names, {
      build: ["make"],
      allow: "plugins.allow_ffi",
      needs: "a C compiler and make, and for Postern on Node the package koffi (`npm install -g koffi`)",
      notes: [
        `\`char *${names.tool}(const char *json)\` gets a call, \`{"tool", "input", "context"}\`, and returns the answer, \`{"output", "is_error"?, "data"?}\`, which \`${names.tool}_free\` gets back. What the library prints goes to the error output.`,
        "The example finds its text by hand; use a JSON library, as cJSON or yyjson, for more than that.",
        "A library is machine code: it runs in a process of its own, contained where bubblewrap works.",
      ],
    }),
    "Makefile": `plugin.so: plugin.c
\tcc -O2 -Wall -Wextra -shared -fPIC -o $@ $<
`,
    "plugin.c": `#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define BEFORE "{\\"output\\":\\""
#define AFTER "\\"}"

/* Finds the end of a JSON string that begins at text. */
static const char *string_end(const char *text) {
  while (*text != '\\0' && *text != '"') text += text[0] == '\\\\' && text[1] != '\\0' ? 2 : 1;
  return text;
}

/* Returns the answer to a call: its text in capital letters. Escapes of JSON, such as \\n and \\u00e4, stay as they are. */
char *${names.tool}(const char *json) {
  const char *field = strstr(json, "\\"text\\":\\"");
  const char *from = field == NULL ? "" : field + strlen("\\"text\\":\\"");
  size_t length = (size_t)(string_end(from) - from);
  char *answer = malloc(sizeof BEFORE + length + sizeof AFTER);
  if (answer == NULL) return NULL;
  char *to = stpcpy(answer, BEFORE);
  for (size_t i = 0; i < length; i++) {
    if (from[i] == '\\\\') {
      *to++ = from[i++];
      size_t digits = from[i] == 'u' ? 5 : 1;
      while (digits-- > 0 && i < length) *to++ = from[i++];
      i--;
    } else {
      *to++ = (char)toupper((unsigned char)from[i]);
    }
  }
  strcpy(to, AFTER);
  return answer;
}

void ${names.tool}_free(char *answer) { free(answer); }
`,
  }),
};
