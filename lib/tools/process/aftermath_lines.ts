import type { Aftermath } from "../../system/process/prepare_command.ts";

/** Returns what the model is told about protected names that a command has made: one line for each, in brackets. */
export function aftermathLines({ quarantined, unchecked }: Aftermath): readonly string[] {
  return [
    ...quarantined.map(({ path, place }) =>
      place === undefined
        ? `[${
          JSON.stringify(path)
        } appeared during the call, is a protected name and could not be moved to quarantine: a person must remove it]`
        : `[${
          JSON.stringify(path)
        } appeared during the call and was moved to quarantine, since it is a protected name; a person finds it at ${
          JSON.stringify(place)
        }]`
    ),
    ...(unchecked
      ? [
        "[Whether protected names appeared during the call is not known: the workspace could not be looked through in time, or holds a name that is not UTF-8]",
      ]
      : []),
  ];
}

/** The same for programs. */
export function aftermathData({ quarantined, unchecked }: Aftermath): Readonly<Record<string, unknown>> {
  return {
    quarantined: quarantined.map(({ path, place = null }) => ({ path, place })),
    ...(unchecked ? { quarantine_unchecked: true } : {}),
  };
}
