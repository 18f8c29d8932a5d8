/** As in `lib/base/text.ts`, which says why. */
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}\p{Zs}\p{Default_Ignorable_Code_Point}]/gu;

/**
 * Spells out what a person would not see in a text to decide about, such as `\u202e`. Newlines and spaces stay.
 * @param {string} text
 */
export function exactText(text) {
  return text.replace(UNSEEN, (character) => {
    if (character === "\n" || character === " ") return character;
    let spelled = "";
    for (let i = 0; i < character.length; i++) {
      spelled += `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`;
    }
    return spelled;
  });
}

/**
 * The same on one line: newlines are spelled out too.
 * @param {string} text
 */
export function exactLine(text) {
  return exactText(text).replaceAll("\n", "\\n");
}
