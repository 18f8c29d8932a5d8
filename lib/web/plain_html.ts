/** Characters of one piece of HTML that are looked at: titles and snippets are shorter. */
const MAX_CHARACTERS = 20_000;

/** Names of characters that search engines use. All others come as numbers or as they are. */
const NAMED: Readonly<Record<string, string>> = {
  amp: "&",
  lt: "<",
  gt: ">",
  quot: '"',
  apos: "'",
  nbsp: " ",
  ndash: "–",
  mdash: "—",
  hellip: "…",
  lsquo: "‘",
  rsquo: "’",
  ldquo: "“",
  rdquo: "”",
  laquo: "«",
  raquo: "»",
  middot: "·",
  bull: "•",
  copy: "©",
  reg: "®",
  trade: "™",
  deg: "°",
  euro: "€",
  pound: "£",
  times: "×",
};

/** Returns the text of a short piece of HTML, as a title with bold words: no tags, characters decoded. White space stays as it is. */
export function textOfHtml(html: string): string {
  return decodeCharacters(html.slice(0, MAX_CHARACTERS).replace(/<[^<>]*>/g, ""));
}

/** Decodes character references, such as `&amp;` and `&#39;`. Unknown ones stay as they are. */
export function decodeCharacters(text: string): string {
  return text.replace(/&(?:#(\d{1,7})|#[xX]([0-9a-fA-F]{1,6})|([a-zA-Z]{2,8}));/g, (whole, decimal, hex, name) => {
    if (name !== undefined) return Object.hasOwn(NAMED, name) ? NAMED[name] ?? whole : whole;
    const code = decimal === undefined ? Number.parseInt(hex, 16) : Number(decimal);
    const isCharacter = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
    return isCharacter ? String.fromCodePoint(code) : "�";
  });
}

/** An opening or closing tag of an HTML page. */
export interface HtmlTag {
  /** Name in lower case, with `/` in front for a closing tag */
  readonly name: string;
  readonly attributes: string;
  /** Place of its `<` in the page */
  readonly start: number;
  /** Place behind its `>` */
  readonly end: number;
}

/** Goes through the tags of a page. Takes time in proportion to the length of the page, whatever is in it. */
export function* tagsOf(html: string): Generator<HtmlTag> {
  for (let start = html.indexOf("<"); start !== -1;) {
    const end = html.indexOf(">", start);
    if (end === -1) return;
    // The last `<` before the `>`: one alone in a text opens nothing
    const opening = html.lastIndexOf("<", end);
    const inside = html.slice(opening + 1, end);
    const [name = ""] = /^\/?[a-zA-Z][a-zA-Z0-9]*/.exec(inside) ?? [];
    if (name !== "") {
      yield { name: name.toLowerCase(), attributes: inside.slice(name.length), start: opening, end: end + 1 };
    }
    start = html.indexOf("<", end + 1);
  }
}

/** Returns an attribute of a tag, decoded. undefined where the tag does not have it. */
export function attributeOf({ attributes }: HtmlTag, name: "class" | "href" | "id"): string | undefined {
  const found = ATTRIBUTES[name].exec(attributes);
  const value = found?.[1] ?? found?.[2];
  return value === undefined ? undefined : decodeCharacters(value);
}

const ATTRIBUTES = {
  class: /(?:^|\s)class=(?:"([^"]*)"|'([^']*)')/i,
  href: /(?:^|\s)href=(?:"([^"]*)"|'([^']*)')/i,
  id: /(?:^|\s)id=(?:"([^"]*)"|'([^']*)')/i,
};

/** Tells whether a tag has a class. */
export function hasClass(tag: HtmlTag, name: string): boolean {
  return attributeOf(tag, "class")?.split(/\s+/).includes(name) ?? false;
}
