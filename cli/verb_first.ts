/** Flags of a group that may stand before its verb too, each with a value. */
const GROUP_FLAGS: Readonly<Record<string, readonly string[]>> = { service: ["--service-init"] };

/** The words of a command line with the verb second: `service --service-init openrc install` has its flag moved behind `install`. */
export function verbFirst(words: readonly string[]): readonly string[] {
  const [group = "", ...rest] = words;
  const flags = Object.hasOwn(GROUP_FLAGS, group) ? GROUP_FLAGS[group] ?? [] : [];
  const moved: string[] = [];
  for (;;) {
    const [word = ""] = rest;
    if (flags.includes(word)) moved.push(...rest.splice(0, 2));
    else if (flags.some((flag) => word.startsWith(`${flag}=`))) moved.push(...rest.splice(0, 1));
    else break;
  }
  const [verb, ...after] = rest;
  return verb === undefined ? words : [group, verb, ...moved, ...after];
}
