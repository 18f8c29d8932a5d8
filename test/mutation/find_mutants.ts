import { stripTypeScriptTypes } from "node:module";
import { parseAst } from "rolldown/parseAst";

/** Small change of a source file, as a slip of the hand would make it. */
export interface Mutant {
  /** Path from the project's root, with `/` */
  readonly file: string;
  /** Place of the change, both counted from 1 */
  readonly line: number;
  readonly column: number;
  /** First and last index of what is replaced, in UTF-16 units; the last one is not part of it */
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
}

/** A node of the ESTree, as Rollup's parser gives it. */
interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

type Change = Pick<Mutant, "start" | "end" | "replacement">;

const SWAPPED: Readonly<Record<string, string>> = {
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
  "===": "!==",
  "!==": "===",
  "+": "-",
  "-": "+",
  "*": "/",
  "/": "*",
  "%": "*",
  "&": "|",
  "|": "&",
  "<<": ">>",
  ">>": "<<",
  "&&": "||",
  "||": "&&",
  "??": "&&",
  "+=": "-=",
  "-=": "+=",
  "??=": "=",
  "++": "--",
  "--": "++",
};
const SWAPPED_METHODS: Readonly<Record<string, string>> = {
  some: "every",
  every: "some",
  min: "max",
  max: "min",
  startsWith: "endsWith",
  endsWith: "startsWith",
};
/** Names whose calls may be left out without anybody being wronged. */
const TALK: ReadonlySet<string> = new Set(["log", "console"]);

/** From here on one more is nothing that anybody would notice: a duration, a size. */
const ROUGH = 1000;

/**
 * Finds every mutant of a TypeScript source: swapped operators and methods, conditions that are always or never true, numbers below
 * 1,000 that are one too high, flipped booleans, dropped `await` and `!`, and statements that are left out. Types are never changed.
 * @throws {Error} for a source that cannot be parsed, or whose types cannot be blanked out in place
 */
export function findMutants(file: string, source: string): readonly Mutant[] {
  // Types become blanks, so that each place in the syntax tree is the same place in the source
  const code = stripTypeScriptTypes(source);
  if (code.length !== source.length) throw new Error(`Cannot find mutants of "${file}": its types are not blanked out`);
  const changes: Change[] = [];
  walk(
    parseAst(code) as unknown as Node,
    undefined,
    (node, parent) => changes.push(...changesOf(node, parent, source)),
  );
  return changes.toSorted((a, b) => a.start - b.start || a.end - b.end).map((change) => ({
    file,
    ...positionOf(source, change.start),
    ...change,
  }));
}

/** The source with the change made. @throws {Error} when it cannot be parsed any more */
export function applyMutant(source: string, { start, end, replacement }: Change): string {
  const mutated = source.slice(0, start) + replacement + source.slice(end);
  parseAst(stripTypeScriptTypes(mutated));
  return mutated;
}

/** Returns the change that a mutant makes, on one line: `a < b` to `a <= b`. */
export function describeMutant(source: string, { start, end, replacement }: Change): string {
  const short = (text: string) => {
    const line = text.replaceAll(/\s+/g, " ");
    return line.length > 60 ? `${line.slice(0, 57)}...` : line;
  };
  return `\`${short(source.slice(start, end))}\` to \`${short(replacement)}\``;
}

function walk(node: Node, parent: Node | undefined, visit: (node: Node, parent: Node | undefined) => void): void {
  visit(node, parent);
  for (const value of Object.values(node)) {
    for (const child of Array.isArray(value) ? value : [value]) if (isNode(child)) walk(child, node, visit);
  }
}

function* changesOf(node: Node, parent: Node | undefined, source: string): Iterable<Change> {
  const replaced = ({ start, end }: Pick<Node, "start" | "end">, replacement: string) => ({ start, end, replacement });
  const text = ({ start, end }: Node) => source.slice(start, end);
  switch (node.type) {
    case "BinaryExpression":
    case "AssignmentExpression":
    case "LogicalExpression": {
      const { operator, left, right } = node as Node & { operator: string; left: Node; right: Node };
      const swapped = SWAPPED[operator];
      if (swapped === undefined || (operator[0] === "+" && (isText(left) || isText(right)))) return;
      const start = source.indexOf(operator, left.end);
      // In brackets, since the new operator may bind differently
      if (node.type !== "AssignmentExpression") yield replaced(node, `(${text(left)}) ${swapped} (${text(right)})`);
      else yield replaced({ start, end: start + operator.length }, swapped);
      return;
    }
    case "UpdateExpression": {
      const { operator, prefix } = node as Node & { operator: string; prefix: boolean };
      const start = prefix ? node.start : node.end - operator.length;
      return yield replaced({ start, end: start + operator.length }, SWAPPED[operator] ?? operator);
    }
    case "UnaryExpression":
      if (node["operator"] === "!") yield replaced({ start: node.start, end: node.start + 1 }, "");
      return;
    case "AwaitExpression":
      return yield replaced({ start: node.start, end: node.start + "await".length }, "");
    case "Literal":
      if (typeof node["value"] === "boolean") yield replaced(node, String(!node["value"]));
      if (typeof node["value"] === "number" && node["value"] < ROUGH) yield replaced(node, String(node["value"] + 1));
      return;
    case "IfStatement":
    case "ConditionalExpression":
      yield replaced(node["test"] as Node, "true");
      return yield replaced(node["test"] as Node, "false");
    case "WhileStatement":
      return yield replaced(node["test"] as Node, "false");
    case "ThrowStatement":
    case "ContinueStatement":
    case "BreakStatement":
      return yield replaced(node, ";");
    case "ExpressionStatement":
      if (node["directive"] === undefined && !TALK.has(rootOf(node["expression"] as Node))) yield replaced(node, ";");
      return;
    case "Identifier": {
      const swapped = SWAPPED_METHODS[node["name"] as string];
      const isMethod = parent?.type === "MemberExpression" && parent["property"] === node && !parent["computed"];
      if (swapped !== undefined && Object.hasOwn(SWAPPED_METHODS, node["name"] as string) && isMethod) {
        yield replaced(node, swapped);
      }
    }
  }
}

/** Tells whether an operand is text, which "-" would only spoil. */
function isText(node: Node): boolean {
  if (node.type === "TemplateLiteral" || (node.type === "Literal" && typeof node["value"] === "string")) {
    return true;
  }
  return node.type === "BinaryExpression" && node["operator"] === "+" &&
    (isText(node["left"] as Node) || isText(node["right"] as Node));
}

/** The name that a chain of members and calls begins with. */
function rootOf(node: Node): string {
  const inner = node["callee"] ?? node["object"] ?? node["expression"];
  return isNode(inner) ? rootOf(inner) : String(node["name"] ?? "");
}

function isNode(value: unknown): value is Node {
  return typeof value === "object" && value !== null && typeof (value as { type?: unknown }).type === "string";
}

function positionOf(source: string, index: number): { readonly line: number; readonly column: number } {
  const before = source.slice(0, index);
  const lineStart = before.lastIndexOf("\n") + 1;
  return { line: before.split("\n").length, column: index - lineStart + 1 };
}
