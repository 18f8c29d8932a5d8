/** What the process ends with (DESIGN.md section 9). */
export const EXIT = { ok: 0, failed: 1, usage: 2, internal: 70, config: 78 } as const;
