import { childOf, elementsOf, type XmlElement } from "../parse_xml.ts";
import { wordAttribute } from "./value_of.ts";

/** A formula on one line: fractions with a slash, exponents after `^`, indices after `_`. Source: ECMA-376 part 1, section 22.1 */
export function mathText(element: XmlElement): string {
  const part = (name: string) => {
    const child = childOf(element, name);
    return child === undefined ? "" : mathText(child);
  };
  const property = (name: string) => {
    const properties = elementsOf(element).find((child) => child.name.endsWith("Pr"));
    const found = properties === undefined ? undefined : childOf(properties, name);
    return found === undefined ? undefined : wordAttribute(found, "val") ?? "";
  };
  switch (element.name) {
    case "m:t":
      return element.children.filter((child) => typeof child === "string").join("");
    case "m:f":
      return `${group(part("m:num"))}/${group(part("m:den"))}`;
    case "m:sSup":
      return part("m:e") + raised("^", part("m:sup"));
    case "m:sSub":
      return part("m:e") + raised("_", part("m:sub"));
    case "m:sSubSup":
      return part("m:e") + raised("_", part("m:sub")) + raised("^", part("m:sup"));
    case "m:nary":
      return `${property("m:chr") ?? "∫"}${raised("_", part("m:sub"))}${raised("^", part("m:sup"))} ${part("m:e")}`;
    case "m:rad":
      return `√${raised("^", part("m:deg"))}(${part("m:e")})`;
    case "m:d": {
      const inside = elementsOf(element).filter(({ name }) => name === "m:e").map(mathText).join(
        property("m:sepChr") ?? "|",
      );
      return `${property("m:begChr") ?? "("}${inside}${property("m:endChr") ?? ")"}`;
    }
    default:
      return elementsOf(element).map(mathText).join("");
  }
}

function raised(sign: "^" | "_", text: string): string {
  return text === "" ? "" : sign + group(text);
}

/** More than one character stands in brackets. */
function group(text: string): string {
  return [...text].length > 1 ? `(${text})` : text;
}
