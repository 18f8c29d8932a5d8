/** Types of the package, without types that nothing in its exports reaches. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, normalize } from "node:path";
import process from "node:process";

const COMPILER = join(import.meta.dirname, "../node_modules/typescript/bin/tsc");
/** Options of the compiler that tell it about one module at a time: what a module exports says its types, as JSR asks for. */
const ALONE = ["--ignoreConfig", "--noResolve", "--lib", "es5", "--target", "es2024", "--module", "nodenext"];
/** A statement that declares a name */
const DECLARES = /^(?:export )?(?:declare )?(?:abstract )?(?:class|const|function|interface|type) (\w+)/;

/** A docstring and the end of its last line, before such a statement */
const DOCUMENTED = /^(\/\*\*(?:(?!\*\/)[^])*\*\/)\n(?=(?:export|declare|interface|type|abstract|class)\b)/gm;

/** Runs the compiler, which writes declarations and checks no types: `npm run check` does that. */
async function compile(folder: string, options: readonly string[]): Promise<void> {
  const words = [
    "--emitDeclarationOnly",
    "--declaration",
    "--noEmit",
    "false",
    "--noCheck",
    "--rootDir",
    ".",
    "--outDir",
    folder,
  ];
  const compiler = spawn("node", [COMPILER, ...options, ...words, "--rewriteRelativeImportExtensions"], {
    stdio: "inherit",
  });
  const [status] = await once(compiler, "exit");
  if (status !== 0) process.exit(typeof status === "number" ? status : 1);
}

/**
 * Writes the declarations of modules, and of each module that these name. A type that a module leaves to the compiler, and that comes from
 * another module, is written as `any`: the pictures of the declarations show it, and JSR refuses it.
 * @param folder where they are written, by the paths of the sources
 * @param options.alone true: of the modules by themselves. Default false
 */
export async function declareTypes(
  folder: string,
  modules: readonly string[],
  { alone = false }: { readonly alone?: boolean } = {},
): Promise<void> {
  const wanted = modules.filter((module) => !existsSync(join(folder, `${module}.d.ts`)));
  if (wanted.length === 0) return;
  await compile(folder, [...ALONE, ...wanted.map((module) => `${module}.ts`)]);
  const named = alone ? [] : wanted.flatMap((module) =>
    [
      ...readFileSync(join(folder, `${module}.d.ts`), "utf8").matchAll(
        /\b(?:from|import\()\s*"(\.[^"]+)\.(?:ts|js)"/g,
      ),
    ]
      .map(([, path = ""]) => join(module, "..", path))
  );
  await declareTypes(folder, [...new Set(named)]);
}

/** Statements of a file that declare a name, and the names that it takes from elsewhere. */
interface Statements {
  readonly own: Map<string, string>;
  /** Statements of `own`, with their docstrings */
  readonly documented: Map<string, string>;
  /** File and name of an imported one, by its name here */
  readonly imported: ReadonlyMap<string, { readonly file: string; readonly name: string }>;
  /** Imports from packages, by the name here */
  readonly packages: ReadonlyMap<string, string>;
  /** Lists of an `export ... from` */
  readonly passedOn: readonly string[];
}

function readStatements(folder: string, file: string): Statements {
  // A docstring stays with what it is about
  const text = readFileSync(join(folder, file), "utf8").replaceAll(DOCUMENTED, "\0$1\0")
    .replaceAll(/typeof import\("([^".][^"]*)"\)/g, (whole, from: string) => isBrought(from) ? whole : "any");
  const [own, documented] = [new Map<string, string>(), new Map<string, string>()];
  const [imported, packages] = [new Map(), new Map<string, string>()];
  const passedOn: string[] = [];
  // A type may be named where it is used. Its name is imported then
  const inline = /import\("([^"]+)"\)\.(\w+)/g;
  const elsewhere = (path: string) => normalize(join(file, "..", path.replace(/\.[jt]s$/, ".d.ts")));
  const take = (path: string, name: string, as = name) => {
    if (path.startsWith(".")) imported.set(as, { file: elsewhere(path), name });
    else packages.set(as, `import type { ${name === as ? name : `${name} as ${as}`} } from "${path}";`);
  };
  for (const [, path = "", name = ""] of text.matchAll(inline)) take(path, name);
  for (
    const part of text.replaceAll(inline, "$2").split(
      /\n(?=\0|(?:import|export|declare|interface|type|abstract|class)\b)/,
    )
  ) {
    const whole = part.replaceAll("\0", "\n").trim();
    const statement = whole.replaceAll(/^ *\/\*\*[^]*?\*\/\n/gm, "");
    const [, verb, list = "", path = ""] = /^(import|export)(?: type)? \{([^}]*)\} from "([^"]+)"/.exec(statement) ??
      [];
    const [, module = ""] = /^import (?:type )?(?:\* as )?(\w+) from "[^.]/.exec(statement) ?? [];
    if (module !== "") packages.set(module, statement.trim());
    for (
      const [name = "", as = name] of list.split(",").map((part) => part.trim().replace(/^type /, "").split(" as "))
    ) {
      if (name === "") continue;
      take(path, name, as);
      if (verb === "export") passedOn.push(as);
    }
    const declared = DECLARES.exec(statement)?.[1];
    if (declared === undefined) continue;
    for (const [texts, one] of [[own, statement], [documented, whole]] as const) {
      texts.set(declared, [texts.get(declared), one.trim()].filter(Boolean).join("\n"));
    }
  }
  return { own, documented, imported, packages, passedOn };
}

/**
 * Returns the declarations of one file with all that it reaches in one text: those that it exports, with their docstrings, and each that one
 * of them names.
 * @param folder declarations of all sources
 * A type of a package that Postern does not bring is `any`.
 * @throws {Error} two packages have an import of the same name
 */
function joinTypes(folder: string, entry: string): string {
  const files = new Map<string, Statements>();
  const filesOf = (file: string) => {
    const read = files.get(file) ?? readStatements(folder, file);
    files.set(file, read);
    return read;
  };
  const packages = new Map<string, string>();
  /** Texts by their names in the joined file, each with the place it comes from */
  const found = new Map<string, { readonly place: string; text: string }>();
  const { own, passedOn } = filesOf(entry);
  /** @returns the file that declares a name, and its name there */
  const originOf = (file: string, word: string): string => {
    const origin = filesOf(file).imported.get(word);
    return origin === undefined ? `${file} ${word}` : originOf(origin.file, origin.name);
  };
  /** @returns the name in the joined file, undefined where the word names no declaration */
  const visit = (file: string, word: string): string | undefined => {
    const { own, documented, imported, packages: ofPackages } = filesOf(file);
    const origin = imported.get(word);
    if (origin !== undefined) return visit(origin.file, origin.name);
    const line = ofPackages.get(word);
    if (line !== undefined && (packages.get(word) ?? line) !== line) {
      throw new Error(`Cannot join types: ${line} differs`);
    }
    if (line !== undefined) packages.set(word, line);
    const place = `${file} ${word}`;
    const isExported = file === entry || passedOn.some((name) => originOf(entry, name) === place);
    const text = isExported ? documented.get(word) : own.get(word);
    if (text === undefined) return undefined;
    let name = word;
    for (let n = 2; found.has(name) && found.get(name)?.place !== place; n++) name = `${word}_${n}`;
    if (found.has(name)) return name;
    const statement = { place, text };
    found.set(name, statement);
    const plain = file === entry
      ? text
      : text.replaceAll(/^export /gm, "").replaceAll(/^(?=(?:abstract )?(?:class|const|function) )/gm, "declare ");
    const named = plain.replace(new RegExp(`\\b(class|const|function|interface|type) ${word}\\b`, "g"), `$1 ${name}`);
    // Neither a docstring, a member nor a key
    const parts = named.replaceAll(
      /\/\*\*[^]*?\*\/|(?<![.\w"'])[A-Za-z_]\w*(?![\w"']|\??:)/g,
      (part) => part.startsWith("/") ? part : part === word || part === name ? name : visit(file, part) ?? part,
    );
    statement.text = isExported ? parts : `/** @internal */\n${parts}`;
    return name;
  };
  for (const name of own.keys()) visit(entry, name);
  const names = passedOn.map((name) => visit(entry, name));
  const heads = [...packages].map(([name, line]) =>
    isBrought(line.split('"').at(-2) ?? "") ? line : `type ${name} = any;`
  );
  return [...heads, ...[...found.values()].map(({ text }) => text), `export type { ${names.join(", ")} };`, ""].join(
    "\n",
  );
}

/** Tells whether a package is there wherever Postern is installed. */
function isBrought(name: string): boolean {
  const { dependencies } = JSON.parse(readFileSync("package.json", "utf8"));
  return name.startsWith("node:") || name in dependencies;
}

/**
 * Writes the types of `postern/handlers` into one file. Its parts are those of the whole gateway, so that the compiler has to look at every
 * source, which takes longer than the rest of the build.
 */
export async function declareHandlers(file: string): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "postern-types-"));
  try {
    await compile(folder, ["-p", "tsconfig.build.json"]);
    writeFileSync(file, joinTypes(folder, "handlers/handlers.d.ts"));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

if (import.meta.main) await declareHandlers(process.argv[2] ?? "dist/handlers/handlers.d.ts");
