import { html, Parser, type Token, type TreeAdapter, type TreeAdapterTypeMap } from "parse5";
import type { WorkBudget } from "../documents/work_budget.ts";

/** Element of an HTML page, an element of SVG or MathML included. */
export interface HtmlElement {
  readonly tag: string;
  readonly attributes: Token.Attribute[];
  readonly children: HtmlNode[];
  parent: HtmlElement | undefined;
  /** Elements above it. The parser may move an element, so the number is a bound, not exact. */
  depth: number;
}

/** Text of an HTML page, with its entities decoded. */
export interface HtmlText {
  text: string;
  parent: HtmlElement | undefined;
}

/** Node of an HTML page. Comments and document types are left out. */
export type HtmlNode = HtmlElement | HtmlText;

/** Elements that are nested deeper become neighbours of their parents, so that every walk over a page may recurse. */
const MAX_DEPTH = 200;
/** UTF-16 units that are parsed between two looks at the clock, since a long tag or comment makes no nodes to look at. */
const CHUNK_LENGTH = 8192;

/**
 * Parses an HTML page as browsers do.
 *
 * Every node is counted as it is made, so that no nesting, no formatting element and no misplaced table takes more time or memory
 * than the budget has.
 * @returns the root, whose children are those of the document
 * @throws {DocumentError} `document_too_slow`, `document_too_large`
 * Source: HTML Living Standard, section 13.2
 */
export function parseHtml(text: string, budget: WorkBudget): HtmlElement {
  const growing = new GrowingText();
  const parser = new Parser<PageTree>({ treeAdapter: createTreeAdapter(budget, growing), scriptingEnabled: false });
  for (let at = 0; at < text.length; at += CHUNK_LENGTH) {
    budget.step(CHUNK_LENGTH / 2);
    parser.tokenizer.write(text.slice(at, at + CHUNK_LENGTH), false);
  }
  parser.tokenizer.write("", true);
  growing.flush();
  return parser.document;
}

/** Tells whether a node is an element. */
export function isElement(node: HtmlNode): node is HtmlElement {
  return "tag" in node;
}

/** Returns the value of an attribute, by its name in lower case. */
export function htmlAttribute({ attributes }: HtmlElement, name: string): string | undefined {
  for (const attribute of attributes) if (attribute.name === name) return attribute.value;
  return undefined;
}

/** Returns the elements inside an element, in the order of the page. */
export function elementsIn(root: HtmlElement): readonly HtmlElement[] {
  const found: HtmlElement[] = [];
  const visit = ({ children }: HtmlElement) => {
    for (const child of children) {
      if (!isElement(child)) continue;
      found.push(child);
      visit(child);
    }
  };
  visit(root);
  return found;
}

/** Returns the text inside a node as the page has it, white space included. */
export function textInside(node: HtmlNode): string {
  const texts: string[] = [];
  const visit = (at: HtmlNode) => {
    if (!isElement(at)) texts.push(at.text);
    else for (const child of at.children) visit(child);
  };
  visit(node);
  return texts.join("");
}

/** Takes a node out of the page. */
export function detach(node: HtmlNode): void {
  const siblings = node.parent?.children;
  node.parent = undefined;
  if (siblings === undefined) return;
  const at = siblings.at(-1) === node ? siblings.length - 1 : siblings.indexOf(node);
  if (at !== -1) siblings.splice(at, 1);
}

type PageTree = TreeAdapterTypeMap<
  HtmlNode,
  HtmlElement,
  HtmlNode,
  HtmlElement,
  HtmlElement,
  HtmlElement,
  HtmlText,
  HtmlText,
  HtmlElement,
  HtmlText
>;

/** Pieces of a text that are joined at once. */
const MAX_PIECES = 256;

/** The text that the parser adds to, word by word. Joined one by one, each word would cost memory many times its own. */
class GrowingText {
  #node: HtmlText | undefined = undefined;
  #pieces: string[] = [];

  add(node: HtmlText, piece: string): void {
    if (node !== this.#node || this.#pieces.length >= MAX_PIECES) this.flush();
    this.#node = node;
    this.#pieces.push(piece);
  }

  flush(): void {
    if (this.#node !== undefined) this.#node.text += this.#pieces.join("");
    this.#pieces = [];
  }
}

/** Names of nodes that are no elements of the page. */
const DOCUMENT = "#document";
const FRAGMENT = "#fragment";

/** Shadow tree that a page declares, while its host is parsed. */
interface ShadowTree {
  readonly root: HtmlElement;
  /** By name, "" for what names none. undefined: the host has no other child so far */
  slots: ReadonlyMap<string, { readonly slot: HtmlElement; isFilled: boolean }> | undefined;
  /** Holds the children for which there is no slot */
  unseen: HtmlElement | undefined;
}

/** Tells whether a `template` is the shadow tree of the element it is in, which is seen in its place. */
export function isShadowRoot(element: HtmlElement): boolean {
  return element.tag === "template" && /^(?:open|closed)$/i.test(htmlAttribute(element, "shadowrootmode") ?? "");
}

function createTreeAdapter(budget: WorkBudget, growing: GrowingText): TreeAdapter<PageTree> {
  const namespaces = new WeakMap<HtmlElement, html.NS>();
  const contents = new WeakMap<HtmlElement, HtmlElement>();
  let mode = html.DOCUMENT_MODE.NO_QUIRKS;
  const create = (tag: string, attributes: Token.Attribute[]): HtmlElement => {
    // An attribute is about as large as a node
    budget.keep(1 + attributes.length);
    budget.step(8);
    return { tag, attributes, children: [], parent: undefined, depth: 0 };
  };
  const createText = (text: string): HtmlText => {
    budget.keep(1);
    return { text, parent: undefined };
  };
  const shadows = new Map<HtmlElement, ShadowTree>();
  const insert = (parent: HtmlElement, node: HtmlNode, before?: HtmlNode) => {
    budget.step(8);
    let place = placeOf(parent, node);
    if (isElement(node) && isShadowRoot(node) && !shadows.has(parent)) {
      shadows.set(parent, { root: node, slots: undefined, unseen: undefined });
    }
    while (place.depth >= MAX_DEPTH && place.parent !== undefined) place = place.parent;
    node.parent = place;
    if (isElement(node)) node.depth = place.depth + 1;
    const at = before === undefined ? -1 : indexOf(place, before);
    if (at === -1) place.children.push(node);
    else place.children.splice(at, 0, node);
  };
  /** Returns where a child is seen: that of an element with a shadow tree in its slot there, and nowhere without one. */
  const placeOf = (parent: HtmlElement, node: HtmlNode): HtmlElement => {
    const shadow = shadows.get(parent);
    if (shadow === undefined || (!isElement(node) && node.text.trim() === "")) return parent;
    if (shadow.slots === undefined) {
      const slots = elementsIn(shadow.root).filter(({ tag }) => tag === "slot").reverse();
      budget.keep(slots.length);
      shadow.slots = new Map(slots.map((slot) => [htmlAttribute(slot, "name") ?? "", { slot, isFilled: false }]));
    }
    const found = shadow.slots.get(isElement(node) ? htmlAttribute(node, "slot") ?? "" : "");
    if (found === undefined) {
      if (shadow.unseen === undefined) {
        shadow.unseen = create("div", [{ name: "hidden", value: "" }]);
        shadow.unseen.parent = parent;
        shadow.unseen.depth = parent.depth + 1;
        parent.children.push(shadow.unseen);
      }
      return shadow.unseen;
    }
    // A slot shows its own children only until the page puts others into it
    if (!found.isFilled) found.slot.children.length = 0;
    found.isFilled = true;
    return found.slot;
  };
  /** The wanted node is nearly always the last one. A search counts, as page after page of misplaced table content needs many. */
  const indexOf = ({ children }: HtmlElement, node: HtmlNode): number => {
    if (children.at(-1) === node) return children.length - 1;
    budget.step(1 + (children.length >> 4));
    return children.indexOf(node);
  };
  const insertText = (parent: HtmlElement, text: string, previous: HtmlNode | undefined, before?: HtmlNode) => {
    budget.step(2);
    if (previous !== undefined && !isElement(previous)) growing.add(previous, text);
    else insert(parent, createText(text), before);
  };
  return {
    createDocument: () => create(DOCUMENT, []),
    createDocumentFragment: () => create(FRAGMENT, []),
    createElement(tag, namespace, attributes) {
      const element = create(tag, attributes);
      namespaces.set(element, namespace);
      return element;
    },
    // Comments are never put into the tree
    createCommentNode: () => ({ text: "", parent: undefined }),
    createTextNode: createText,
    appendChild(parent, node) {
      if (isElement(node) || node.text !== "") insert(parent, node);
    },
    insertBefore(parent, node, before) {
      if (isElement(node) || node.text !== "") insert(parent, node, before);
    },
    insertText(parent, text) {
      const place = shadows.has(parent) ? placeOf(parent, { text, parent }) : parent;
      insertText(place, text, place.children.at(-1));
    },
    insertTextBefore(parent, text, before) {
      const at = indexOf(parent, before);
      insertText(parent, text, at > 0 ? parent.children[at - 1] : undefined, before);
    },
    detachNode(node) {
      budget.step(8 + ((node.parent?.children.length ?? 0) >> 4));
      detach(node);
    },
    adoptAttributes(element, attributes) {
      const known = new Set(element.attributes.map(({ name }) => name));
      const added = attributes.filter(({ name }) => !known.has(name));
      budget.keep(added.length);
      budget.step(known.size + added.length);
      element.attributes.push(...added);
    },
    setTemplateContent: (template, content) => void contents.set(template, isShadowRoot(template) ? template : content),
    getTemplateContent: (template) => contents.get(template) ?? template,
    setDocumentType() {},
    setDocumentMode: (_document, next) => void (mode = next),
    getDocumentMode: () => mode,
    getFirstChild: ({ children }) => children[0] ?? null,
    getChildNodes: ({ children }) => children,
    getParentNode: ({ parent }) => parent ?? null,
    getAttrList: ({ attributes }) => attributes,
    getTagName: ({ tag }) => tag,
    getNamespaceURI: (element) => namespaces.get(element) ?? html.NS.HTML,
    getTextNodeContent: ({ text }) => text,
    getCommentNodeContent: ({ text }) => text,
    getDocumentTypeNodeName: () => "",
    getDocumentTypeNodePublicId: () => "",
    getDocumentTypeNodeSystemId: () => "",
    isTextNode: (node): node is HtmlText => !isElement(node),
    isCommentNode: (_node): _node is HtmlText => false,
    isDocumentTypeNode: (_node): _node is HtmlText => false,
    isElementNode: isElement,
    getNodeSourceCodeLocation: () => undefined,
    setNodeSourceCodeLocation() {},
    updateNodeSourceCodeLocation() {},
  };
}
