/** Variable whose value `stdin` tells a process to read its real environment from standard input, as one JSON object. */
export const HANDOVER_VARIABLE = "POSTERN_ENVIRONMENT";
