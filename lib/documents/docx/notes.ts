import { elementsOf, type XmlElement } from "../parse_xml.ts";
import { wordAttribute } from "./open_docx.ts";

/** Footnotes, endnotes and comments, in the order the text names them. */
export interface Notes {
  /** The label of a note, such as `1`, `e1`, `c1`; undefined when there is none of that id */
  label(kind: NoteKind, id: string | undefined): string | undefined;
  /** The next named note that was not taken yet */
  take(): Note | undefined;
  readonly count: number;
}

/** The part of the document that holds a note. */
export type NoteKind = "footnotes" | "endnotes" | "comments";

/** A footnote, endnote or comment that the text names. */
export interface Note {
  readonly kind: NoteKind;
  readonly label: string;
  readonly element: XmlElement;
  /** Name of the person who wrote the comment; undefined for a note */
  readonly author: string | undefined;
}

const SIGNS: Readonly<Record<NoteKind, string>> = { footnotes: "", endnotes: "e", comments: "c" };

/** Creates the notes of a document. @param part the root element of the notes of a kind; read when the first of them is named */
export function createNotes(part: (kind: NoteKind) => XmlElement | undefined): Notes {
  const parts = new Map<NoteKind, Map<string, XmlElement>>();
  const labels = new Map<XmlElement, string>();
  const waiting: Note[] = [];
  const counts: Record<NoteKind, number> = { footnotes: 0, endnotes: 0, comments: 0 };
  const notesOf = (kind: NoteKind) => {
    const known = parts.get(kind) ?? byId(part(kind));
    parts.set(kind, known);
    return known;
  };
  return {
    label(kind, id) {
      const element = id === undefined ? undefined : notesOf(kind).get(id);
      if (element === undefined) return undefined;
      const known = labels.get(element);
      if (known !== undefined) return known;
      const label = `${SIGNS[kind]}${++counts[kind]}`;
      labels.set(element, label);
      waiting.push({
        kind,
        label,
        element,
        author: kind === "comments" ? wordAttribute(element, "author") : undefined,
      });
      return label;
    },
    take: () => waiting.shift(),
    get count() {
      return labels.size;
    },
  };
}

function byId(root: XmlElement | undefined): Map<string, XmlElement> {
  const found = new Map<string, XmlElement>();
  for (const element of root === undefined ? [] : elementsOf(root)) {
    const id = wordAttribute(element, "id");
    // The lines that separate notes from the text are notes too
    if (id !== undefined && (wordAttribute(element, "type") ?? "normal") === "normal") found.set(id, element);
  }
  return found;
}
