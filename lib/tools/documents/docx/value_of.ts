import { attribute, childOf, type XmlElement } from "../parse_xml.ts";

/** The `w:val` of a child element, as most properties of Word are written. */
export function valueOf(element: XmlElement | undefined, child: string): string | undefined {
  const found = element === undefined ? undefined : childOf(element, child);
  return found === undefined ? undefined : wordAttribute(found, "val");
}

/** Whether a switch as `w:vanish` is there and not turned off. */
export function isOn(element: XmlElement | undefined, child: string): boolean {
  const found = element === undefined ? undefined : childOf(element, child);
  return found !== undefined && !["0", "false", "off"].includes(wordAttribute(found, "val") ?? "");
}

/** A whole number, undefined for anything else. */
export function toInteger(value: string | undefined): number | undefined {
  return value !== undefined && /^-?\d{1,9}$/.test(value) ? Number(value) : undefined;
}

/** An attribute of Word's namespace: its prefix is the element's own, as the document writes it. */
export function wordAttribute(element: XmlElement, name: string): string | undefined {
  return attribute(element, `w:${name}`) ?? foreignPrefix(element, name);
}

/** Documents not made by Word may call the namespace otherwise; then the first attribute of that local name counts. */
function foreignPrefix({ attributes }: XmlElement, name: string): string | undefined {
  const written = new RegExp(`\\s([\\w.-]{1,40}:${name})\\s*=`).exec(attributes)?.[1];
  return written === undefined ? undefined : attribute({ attributes }, written);
}
