/** By execution id: how far it is. Changed by version alone, so that of two writers one looks again. */
export const SOP_EXECUTIONS = "sop_executions";
/** By execution id: what it was started with, which never changes. */
export const SOP_PLANS = "sop_plans";
/** By `<execution id>/<step id>`: what the step gave. */
export const SOP_RESULTS = "sop_results";
/** Ids of executions that have not ended, so that they are found without reading all. */
export const OPEN_SOPS = "open_sops";
