import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { declareTypes } from "../../scripts/declarations.ts";
import { withTemporaryFolder } from "../support/temporary_folder.ts";
import { comparePicture } from "./picture.ts";

/** Kinds of statements that declare a name. */
const DECLARES = /^(?:export )?(?:declare )?(?:abstract )?(?:class|const|function|interface|type) (\w+)/;

/** Names in a `.d.ts` file: its own declarations, and the file that another one comes from, with its name there. */
interface Names {
  readonly own: ReadonlyMap<string, string>;
  readonly elsewhere: ReadonlyMap<string, { readonly file: string; readonly name: string }>;
  readonly exported: readonly string[];
}

/** Reads a file without its comments. A statement begins at the margin. */
function readNames(folder: string, file: string): Names {
  const text = readFileSync(join(folder, file), "utf8").replaceAll(/^ *\/\*\*[\s\S]*?\*\/\n/gm, "");
  const own = new Map<string, string>();
  const elsewhere = new Map<string, { readonly file: string; readonly name: string }>();
  const exported: string[] = [];
  for (const statement of text.split(/\n(?=(?:import|export|declare|interface|type|abstract)\b)/)) {
    const declared = DECLARES.exec(statement)?.[1];
    const [, list = "", from = ""] = /^\w+(?: type)? \{([^}]*)\} from "(\.[^"]+)"/.exec(statement) ?? [];
    const named = list.split(",").map((part) => part.trim().replace(/^type /, "").split(" as ")).filter(([name]) =>
      name !== ""
    );
    for (const [name = "", as = name] of named) {
      elsewhere.set(as, { file: join(dirname(file), from).replace(/\.ts$/, ".d.ts"), name });
    }
    if (declared !== undefined) {
      own.set(declared, `${own.has(declared) ? `${own.get(declared)}\n` : ""}${statement.trim()}`);
    }
    if (statement.startsWith("export")) {
      exported.push(...named.map(([name = "", as = name]) => as), ...declared === undefined ? [] : [declared]);
    }
  }
  return { own, elsewhere, exported };
}

/** Returns the declarations that a program which imports the package can reach: those of its entry, and each that one of them names. */
function reachable(folder: string, entry: string): readonly string[] {
  const files = new Map<string, Names>();
  const found = new Map<string, string>();
  const namesOf = (file: string) => {
    const names = files.get(file) ?? readNames(folder, file);
    files.set(file, names);
    return names;
  };
  const visit = (file: string, name: string): void => {
    const { own, elsewhere } = namesOf(file);
    const origin = elsewhere.get(name);
    if (origin !== undefined) return visit(origin.file, origin.name);
    const text = own.get(name);
    if (text === undefined || found.has(`${name} ${file}`)) return;
    found.set(`${name} ${file}`, text);
    for (const word of text.match(/\b[A-Za-z_]\w*\b/g) ?? []) visit(file, word);
  };
  const { exported } = namesOf(entry);
  for (const name of exported) visit(entry, name);
  const declarations = [...found].sort(([one], [other]) => one < other ? -1 : 1).map(([, text]) => text);
  return [
    ...exported.toSorted().map((name) => `// exports ${name}`),
    ...declarations.flatMap((text) => text.split("\n")),
  ];
}

test("declarations.txt, testing_declarations.txt and handlers.txt show the types of the package", async () => {
  await withTemporaryFolder(async (folder) => {
    await declareTypes(folder, ["handlers/mod", "handlers/testing/mod"]);
    comparePicture("declarations.txt", reachable(folder, "handlers/mod.d.ts"));
    comparePicture("testing_declarations.txt", reachable(folder, "handlers/testing/mod.d.ts"));
    // Their parts are those of the whole gateway
    await declareTypes(folder, ["handlers/handlers"], { alone: true });
    comparePicture("handlers.txt", [...readNames(folder, "handlers/handlers.d.ts").own.values()]);
  });
});
