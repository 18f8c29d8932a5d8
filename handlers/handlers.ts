/**
 * The handlers of the package, `postern/handlers`: every endpoint as a function of its parts, which gives a plain `(Request) => Response`.
 * Path parameters are read from the URL. The table of routes (routes.ts) has them by the same names.
 * @module
 */
import { type HandlerOf, makeHandler, makeSocketHandler, type SocketHandlerOf } from "./make_handler.ts";
import { ROUTE_TABLE } from "./routes.ts";

export type { HandlerOf, HandlerParts, Part, Sender, SocketHandlerOf } from "./make_handler.ts";
export type { Identity } from "../lib/access/identity.ts";

/** `GET /`: Dashboard */
export const dashboard: HandlerOf<"config" | "programName"> = makeHandler(ROUTE_TABLE.dashboard);
/** `GET /health`: Whether the gateway works: ok, degraded (storage or log cannot be written, records are damaged, or the lease in a cluster is lost) or draining (503) */
export const health: HandlerOf<"facts"> = makeHandler(ROUTE_TABLE.health);
/** `GET /health/live`: Whether the process answers */
export const live: HandlerOf<never> = makeHandler(ROUTE_TABLE.live);
/** `GET /metrics`: Metrics as Prometheus text */
export const metrics: HandlerOf<"metrics"> = makeHandler(ROUTE_TABLE.metrics);
/** `GET /v1/status`: Which provider is in use and why, containment, changes of the configuration, and damaged records */
export const status: HandlerOf<"facts"> = makeHandler(ROUTE_TABLE.status);
/** `POST /pair`: Exchange the pairing code in the header X-Pairing-Code for a token; the body says how it is named and when it ends */
export const pair: HandlerOf<"pairing"> = makeHandler(ROUTE_TABLE.pair);
/** `POST /v1/ping`: Echo: message, else the JSON body itself, or null without one */
export const ping: HandlerOf<never> = makeHandler(ROUTE_TABLE.ping);
/** `POST /v1/webhook/:channel`: Dispatch a message of a channel; with wait=1 the reply is waited for */
export const webhook: HandlerOf<"agent" | "tools" | "webhooks"> = makeHandler(ROUTE_TABLE.webhook);
/** `POST /api/chat`: Chat with the agent, answered as JSON */
export const chat: HandlerOf<"agent" | "tools"> = makeHandler(ROUTE_TABLE.chat);
/** `POST /v1/chat/completions`: Chat completion in the chat-completions format; with stream: true as server-sent events */
export const chatCompletions: HandlerOf<"agent" | "kit" | "tools"> = makeHandler(ROUTE_TABLE.chatCompletions);
/** `POST /v1/responses`: A reply in the Responses format; with stream: true as server-sent events */
export const responses: HandlerOf<"agent" | "kit" | "store" | "tools"> = makeHandler(ROUTE_TABLE.responses);
/** `POST /v1/responses/compact`: A conversation condensed into one item, which goes before its next messages */
export const compactResponse: HandlerOf<"agent" | "kit" | "store" | "tools"> = makeHandler(ROUTE_TABLE.compactResponse);
/** `POST /v1/responses/input_tokens`: Estimate of the tokens of a response's input and tools */
export const countResponseTokens: HandlerOf<"agent" | "kit" | "store"> = makeHandler(ROUTE_TABLE.countResponseTokens);
/** `GET /v1/responses/:id`: A stored response, which may be at work; with stream=true its events from any of them on */
export const response: HandlerOf<"agent" | "storedRuns" | "store" | "kit"> = makeHandler(ROUTE_TABLE.response);
/** `GET /v1/responses/:id/input_items`: Items of the input of a stored response, the last one first */
export const responseInputItems: HandlerOf<"agent" | "storedRuns" | "store"> = makeHandler(
  ROUTE_TABLE.responseInputItems,
);
/** `POST /v1/responses/:id/cancel`: Stop a stored response; one that has ended is 409 */
export const cancelResponse: HandlerOf<"agent" | "store" | "kit"> = makeHandler(ROUTE_TABLE.cancelResponse);
/** `DELETE /v1/responses/:id`: Forget a stored response with its run, and its conversation where nothing else was said; one at work is 409 */
export const deleteResponse: HandlerOf<"agent" | "storedRuns" | "store" | "conversations"> = makeHandler(
  ROUTE_TABLE.deleteResponse,
);
/** `POST /v1/messages`: Message in the format of Anthropic's Messages API; with stream: true as server-sent events */
export const messages: HandlerOf<"agent" | "kit" | "tools"> = makeHandler(ROUTE_TABLE.messages);
/** `POST /v1/messages/count_tokens`: Estimate of the tokens of a message's input */
export const countTokens: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.countTokens);
/** `POST /v1/embeddings`: Vectors of texts, from a provider that has an embedding model */
export const embeddings: HandlerOf<"agent" | "config"> = makeHandler(ROUTE_TABLE.embeddings);
/** `GET /ws/chat`: Chat over a WebSocket with streamed replies */
export const chatSocket: SocketHandlerOf<"agent" | "approvals" | "kit" | "sockets"> = makeSocketHandler(
  ROUTE_TABLE.chatSocket,
);
/** `GET /v1/models`: Models of the configured providers */
export const models: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.models);
/** `GET /v1/models/:id+`: One model */
export const model: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.model);
/** `POST /v1/model-servers`: Trust a model server of this machine that another user runs */
export const trustModelServer: HandlerOf<"trustModelServer"> = makeHandler(ROUTE_TABLE.trustModelServer);
/** `POST /webhook`: Legacy webhook: the body and reply of /api/chat */
export const legacyWebhook: HandlerOf<"agent" | "tools"> = makeHandler(ROUTE_TABLE.legacyWebhook);
/** `POST /v1/runs`: Start a run; it is on disk before the reply, and goes on after a restart */
export const startRun: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.startRun);
/** `GET /v1/runs`: Runs that are recorded, newest first */
export const runs: HandlerOf<"agent" | "storedRuns"> = makeHandler(ROUTE_TABLE.runs);
/** `GET /v1/runs/:id/browser`: What a run does in its browser: the last picture and the operations */
export const runBrowser: HandlerOf<"agent" | "storedRuns" | "browserOf"> = makeHandler(ROUTE_TABLE.runBrowser);
/** `GET /v1/runs/:id/files`: Files that the tools of a run wrote or removed, as each call left them; not those of commands and other programs */
export const runFiles: HandlerOf<"agent" | "storedRuns"> = makeHandler(ROUTE_TABLE.runFiles);
/** `GET /v1/runs/:id/files/:file/content`: The bytes that a call of a run wrote, as an attachment; 409 where the file has others by now or may not be read */
export const runFileContent: HandlerOf<"agent" | "storedRuns" | "readWritten" | "store"> = makeHandler(
  ROUTE_TABLE.runFileContent,
);
/** `GET /v1/runs/:id`: One run */
export const run: HandlerOf<"agent" | "storedRuns"> = makeHandler(ROUTE_TABLE.run);
/** `POST /v1/runs/:id/messages`: Say something to the conversation of a run: next, at the run's next tool boundary, or in its place */
export const runMessage: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.runMessage);
/** `POST /v1/runs/:id/cancel`: Stop a run; one that has ended is 409 */
export const cancelRun: HandlerOf<"agent" | "kit"> = makeHandler(ROUTE_TABLE.cancelRun);
/** `POST /v1/runs/:id/resolve`: Let a run that needs review go on, or end it; any other is 409 */
export const resolveRun: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.resolveRun);
/** `GET /v1/runs/:id/events`: Events of a run as server-sent events, live to the terminal one; 204 when the run is over and nothing comes after the position */
export const runEvents: HandlerOf<"agent" | "storedRuns" | "kit"> = makeHandler(ROUTE_TABLE.runEvents);
/** `GET /v1/cluster/runs/:id/events`: For other gateways of the cluster: events of a run that is at work at this gateway; any other run is 409 */
export const clusterRunEvents: HandlerOf<"agent" | "cluster" | "kit"> = makeHandler(ROUTE_TABLE.clusterRunEvents);
/** `GET /v1/conversations`: Conversations, newest first */
export const conversations: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.conversations);
/** `GET /v1/conversations/:id`: One conversation with a page of its messages, in the order they were said, and the run that is at work in it */
export const conversation: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.conversation);
/** `POST /v1/conversations/:id`: Name a conversation; one that is at work is 409 */
export const renameConversation: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.renameConversation);
/** `DELETE /v1/conversations`: Forget every conversation that is not at work */
export const deleteConversations: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.deleteConversations);
/** `DELETE /v1/conversations/:id`: Forget a conversation; one that is at work is 409 */
export const deleteConversation: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.deleteConversation);
/** `GET /v1/memory`: What the agent keeps between conversations, newest first; with a query the best first */
export const memory: HandlerOf<"memory"> = makeHandler(ROUTE_TABLE.memory);
/** `DELETE /v1/memory`: Forget the memory of a key, without a key those of a namespace, without either all of them */
export const deleteMemory: HandlerOf<"memory"> = makeHandler(ROUTE_TABLE.deleteMemory);
/** `GET /v1/tools`: Tools, enabled or not */
export const tools: HandlerOf<"tools"> = makeHandler(ROUTE_TABLE.tools);
/** `GET /v1/tools/:name`: One tool */
export const tool: HandlerOf<"tools"> = makeHandler(ROUTE_TABLE.tool);
/** `POST /v1/tools/:name/call`: Call a tool; a bad, disabled or denied call is a result with is_error */
export const callTool: HandlerOf<"tools" | "calls"> = makeHandler(ROUTE_TABLE.callTool);
/** `POST /v1/tools/:name/enable`: Turn a tool on by its key of the configuration file; runs that begin from then on have it */
export const enableTool: HandlerOf<"tools" | "turnOnTool"> = makeHandler(ROUTE_TABLE.enableTool);
/** `GET /v1/mcp-records`: MCP servers that left the configuration, and of which something is kept */
export const mcpRecords: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.mcpRecords);
/** `DELETE /v1/mcp-records/:name`: Forget an MCP server that left the configuration: its accepted tools, its sign-in and its switch */
export const forgetMcpRecord: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.forgetMcpRecord);
/** `GET /v1/mcp-servers`: MCP servers of the configuration, with state, tools, last error and log, and why each is off */
export const mcpServers: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.mcpServers);
/** `GET /v1/mcp-servers/:name`: One MCP server */
export const mcpServer: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.mcpServer);
/** `POST /v1/mcp-servers/:name/enable`: Let a server run that was turned off, where the configuration allows it */
export const enableMcpServer: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.enableMcpServer);
/** `POST /v1/mcp-servers/:name/accept`: Offer tools of a server that have changed, or are new, by the digests of their definitions */
export const acceptMcpTools: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.acceptMcpTools);
/** `POST /v1/mcp-servers/:name/disable`: End a server and keep it from being started, over restarts too */
export const disableMcpServer: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.disableMcpServer);
/** `POST /v1/mcp-servers/:name/restart`: Restart a server, and read its tools; a start that fails is in the reply */
export const restartMcpServer: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.restartMcpServer);
/** `POST /mcp`: One message of an MCP client: the tools of this gateway for other agents */
export const mcp: HandlerOf<"mcp"> = makeHandler(ROUTE_TABLE.mcp);
/** `GET /mcp`: Notifications to an MCP client with a session */
export const mcpStream: HandlerOf<"mcp"> = makeHandler(ROUTE_TABLE.mcpStream);
/** `DELETE /mcp`: End the session of an MCP client */
export const endMcpSession: HandlerOf<"mcp"> = makeHandler(ROUTE_TABLE.endMcpSession);
/** `GET /v1/approvals`: Approvals of tool calls, waiting and answered, newest first */
export const approvals: HandlerOf<"approvals"> = makeHandler(ROUTE_TABLE.approvals);
/** `GET /v1/approvals/:id`: One approval, with the exact input of its tool call */
export const approval: HandlerOf<"approvals"> = makeHandler(ROUTE_TABLE.approval);
/** `POST /v1/approvals/:id`: Approve or deny a call, or answer what a server asks; what is remembered comes back as stored_rule */
export const answerApproval: HandlerOf<"approvals" | "agent" | "tools" | "workspaceRoot"> = makeHandler(
  ROUTE_TABLE.answerApproval,
);
/** `GET /v1/approval-rules`: Answers that are remembered, newest first */
export const approvalRules: HandlerOf<"approvals"> = makeHandler(ROUTE_TABLE.approvalRules);
/** `DELETE /v1/approval-rules/:id`: Forget a remembered answer */
export const revokeApprovalRule: HandlerOf<"approvals"> = makeHandler(ROUTE_TABLE.revokeApprovalRule);
/** `GET /v1/halts`: Work that is halted, the oldest halt first */
export const halts: HandlerOf<"halts"> = makeHandler(ROUTE_TABLE.halts);
/** `POST /v1/halts`: Halt all work, or some: nothing of it begins any more, and what is at work is stopped */
export const halt: HandlerOf<"halts"> = makeHandler(ROUTE_TABLE.halt);
/** `DELETE /v1/halts`: Let halted work go on */
export const resume: HandlerOf<"halts"> = makeHandler(ROUTE_TABLE.resume);
/** `GET /v1/tainted-files`: Files that were made from outside content: a run that reads one asks before it writes */
export const taintedFiles: HandlerOf<"taintedFiles" | "workspaceRoot"> = makeHandler(ROUTE_TABLE.taintedFiles);
/** `DELETE /v1/tainted-files`: Vouch for a file, or for every file below a folder: reading them taints no run any more */
export const clearTaint: HandlerOf<"taintedFiles" | "workspaceRoot"> = makeHandler(ROUTE_TABLE.clearTaint);
/** `GET /v1/schedules`: Schedules that are active or paused, newest first */
export const schedules: HandlerOf<"cron"> = makeHandler(ROUTE_TABLE.schedules);
/** `GET /v1/schedules/:id`: One schedule, with its next time and its last firing */
export const schedule: HandlerOf<"cron"> = makeHandler(ROUTE_TABLE.schedule);
/** `GET /v1/schedules/:id/history`: Firings of a schedule with their runs, skipped, missed and failed ones among them, newest first */
export const scheduleHistory: HandlerOf<"cron"> = makeHandler(ROUTE_TABLE.scheduleHistory);
/** `POST /v1/schedules/:id/run`: Fire a schedule now, with no more rights than both its maker and the caller have */
export const runSchedule: HandlerOf<"agent" | "cron"> = makeHandler(ROUTE_TABLE.runSchedule);
/** `GET /v1/deliveries`: Replies of channels on their way to their reply_url, and messages of [[notify]], newest first */
export const deliveries: HandlerOf<"deliveries"> = makeHandler(ROUTE_TABLE.deliveries);
/** `POST /v1/deliveries/:id/resolve`: Send a delivery that is held or failed, or drop one that is held; any other is 409 */
export const resolveDelivery: HandlerOf<"deliveries"> = makeHandler(ROUTE_TABLE.resolveDelivery);
/** `POST /v1/notify/:name/test`: Send a message of a test by a rule of [[notify]], once, and say whether it was taken */
export const testNotify: HandlerOf<"deliveries"> = makeHandler(ROUTE_TABLE.testNotify);
/** `GET /answer/:token`: Page with the question of an answer link; it answers nothing */
export const answerPage: HandlerOf<"answerLinks"> = makeHandler(ROUTE_TABLE.answerPage);
/** `POST /answer`: Answer the question of an answer link, once, from its page */
export const answer: HandlerOf<"answerLinks"> = makeHandler(ROUTE_TABLE.answer);
/** `GET /ws/node`: The link of a node, with the token of [gateway.node_control] */
export const nodeSocket: SocketHandlerOf<"nodes" | "kit" | "sockets"> = makeSocketHandler(ROUTE_TABLE.nodeSocket);
/** `GET /v1/nodes`: Nodes that may connect, and whether they are */
export const nodes: HandlerOf<"nodes"> = makeHandler(ROUTE_TABLE.nodes);
/** `GET /v1/nodes/:id`: One node and the tools it last reported */
export const node: HandlerOf<"nodes"> = makeHandler(ROUTE_TABLE.node);
/** `POST /v1/nodes/:id/describe`: Ask a node for its tools again */
export const describeNode: HandlerOf<"nodes"> = makeHandler(ROUTE_TABLE.describeNode);
/** `POST /v1/nodes/:id/invoke`: Call a tool of a node; a bad, disabled or denied call is a result with is_error */
export const invokeNode: HandlerOf<"nodes" | "calls"> = makeHandler(ROUTE_TABLE.invokeNode);
/** `POST /v1/cluster/nodes/:id/call`: For other gateways of the cluster: call a tool of a node that is connected to this gateway */
export const clusterNodeCall: HandlerOf<"nodes" | "cluster" | "kit"> = makeHandler(ROUTE_TABLE.clusterNodeCall);
/** `POST /v1/cluster/nodes/:id/describe`: For other gateways of the cluster: ask a node that is connected to this gateway for its tools */
export const clusterNodeDescribe: HandlerOf<"nodes" | "cluster" | "kit"> = makeHandler(ROUTE_TABLE.clusterNodeDescribe);
/** `POST /v1/mcp-servers/:name/changes`: Record in the audit that the command line entered an MCP server into the configuration, or took it out */
export const mcpChange: HandlerOf<"audit"> = makeHandler(ROUTE_TABLE.mcpChange);
/** `POST /v1/mcp-servers/:name/login`: Begin the sign-in of a person to an MCP server, and return the page to open */
export const mcpLogin: HandlerOf<"mcpSignIn"> = makeHandler(ROUTE_TABLE.mcpLogin);
/** `POST /v1/mcp-servers/:name/login/complete`: Take the answer to a sign-in that was begun, once, and keep the tokens, encrypted */
export const completeMcpLogin: HandlerOf<"mcpSignIn"> = makeHandler(ROUTE_TABLE.completeMcpLogin);
/** `DELETE /v1/mcp-servers/:name/login`: Remove the sign-in to an MCP server, and revoke its tokens where the authorization server lets one */
export const removeMcpLogin: HandlerOf<"mcpSignIn"> = makeHandler(ROUTE_TABLE.removeMcpLogin);
/** `GET /v1/cluster`: Gateways that share the database, with leases, runs, queue and the state of the database */
export const cluster: HandlerOf<"cluster" | "config" | "stateReason"> = makeHandler(ROUTE_TABLE.cluster);
/** `GET /v1/cluster/runs`: Open runs of the cluster in the order of their ids, and the gateway that owns each */
export const clusterRuns: HandlerOf<"cluster" | "config"> = makeHandler(ROUTE_TABLE.clusterRuns);
/** `GET /v1/cluster/link`: For other gateways of the cluster: the id of the gateway that answers */
export const clusterLink: HandlerOf<"kit" | "cluster"> = makeHandler(ROUTE_TABLE.clusterLink);
/** `POST /v1/cluster/gateways/:id/drain`: Drain a gateway of the cluster: it ends its work, hands durable runs on, and accepts no new work until it is restarted */
export const drainGateway: HandlerOf<"audit" | "cluster" | "config"> = makeHandler(ROUTE_TABLE.drainGateway);
/** `POST /v1/cluster/workspaces/:id/forget-folder`: Forget which folder a workspace of the cluster is: the next gateway with its workspace_id says it; refused while a gateway works in it */
export const forgetFolder: HandlerOf<"audit" | "cluster" | "config"> = makeHandler(ROUTE_TABLE.forgetFolder);
/** `GET /v1/browser-logins`: Sites that people signed the agent's browser in at, without cookies and values */
export const browserLogins: HandlerOf<"browserLogins"> = makeHandler(ROUTE_TABLE.browserLogins);
/** `POST /v1/browser-logins`: Keep the login of a site, encrypted, in the place of the one before; runs get those that [browser] logins names */
export const saveBrowserLogin: HandlerOf<"browserLogins"> = makeHandler(ROUTE_TABLE.saveBrowserLogin);
/** `DELETE /v1/browser-logins/:site`: Remove the login of a site; a browser that is open keeps it until it ends */
export const removeBrowserLogin: HandlerOf<"browserLogins"> = makeHandler(ROUTE_TABLE.removeBrowserLogin);
/** `POST /v1/files`: Keep a picture or a document, which messages then name by its id; a form with file, purpose, conversation_id */
export const sendFile: HandlerOf<"uploads" | "store"> = makeHandler(ROUTE_TABLE.sendFile);
/** `GET /v1/files`: Files that the caller sent, newest first */
export const files: HandlerOf<"uploads"> = makeHandler(ROUTE_TABLE.files);
/** `GET /v1/files/:id`: One file, without its bytes */
export const file: HandlerOf<"uploads"> = makeHandler(ROUTE_TABLE.file);
/** `GET /v1/files/:id/content`: The bytes of a file, as an attachment with the media type that its first bytes say */
export const fileContent: HandlerOf<"uploads"> = makeHandler(ROUTE_TABLE.fileContent);
/** `DELETE /v1/files/:id`: Forget a file; messages that named it keep what they were given of it */
export const deleteFile: HandlerOf<"uploads"> = makeHandler(ROUTE_TABLE.deleteFile);
/** `GET /v1/plugins`: Plugins, installed and found, and why each is on or off */
export const plugins: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.plugins);
/** `GET /v1/plugins/:id`: One plugin */
export const plugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.plugin);
/** `POST /v1/plugins`: Install a package, which is off until it is enabled */
export const installPlugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.installPlugin);
/** `POST /v1/plugins/:id/enable`: Enable a plugin for the content with this digest, with the capabilities that it asks for */
export const enablePlugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.enablePlugin);
/** `POST /v1/plugins/:id/disable`: Disable a plugin */
export const disablePlugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.disablePlugin);
/** `DELETE /v1/plugins/:id`: Remove an installed package */
export const removePlugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.removePlugin);
/** `GET /v1/plugin-registry`: Plugins of the registry whose id or description has all words of a query */
export const searchPlugins: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.searchPlugins);
/** `POST /v1/plugin-registry/install`: Install or update a plugin from the registry */
export const installFromRegistry: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.installFromRegistry);
/** `POST /v1/plugin-registry/trust-key`: Accept the key of a plugin's publisher, in place of the one before */
export const trustPluginKey: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.trustPluginKey);
/** `GET /v1/skills`: Skills, installed and found, and why each is on or off */
export const skills: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.skills);
/** `GET /v1/skills/:name`: One skill, with the text of its files and what changed since it was trusted */
export const skill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.skill);
/** `GET /v1/skills/:name/test`: Check a skill strictly: every deviation from the format, and links to files that are not there */
export const testSkill: HandlerOf<"tools" | "skills"> = makeHandler(ROUTE_TABLE.testSkill);
/** `POST /v1/skills`: Install a skill from an archive: tar, tar.gz or zip */
export const installSkill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.installSkill);
/** `POST /v1/skill-installations`: Install a skill from a git repository */
export const installSkillFromGit: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.installSkillFromGit);
/** `POST /v1/skills/:name/trust`: Trust a skill with the content of this digest */
export const trustSkill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.trustSkill);
/** `DELETE /v1/skills/:name/trust`: Take the trust in a skill back */
export const untrustSkill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.untrustSkill);
/** `DELETE /v1/skills/:name`: Remove an installed skill */
export const removeSkill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.removeSkill);
/** `GET /v1/workspace-instructions`: Instructions of the workspace, and what changed since they were trusted */
export const instructions: HandlerOf<"instructions"> = makeHandler(ROUTE_TABLE.instructions);
/** `POST /v1/workspace-instructions/trust`: Trust the instructions of the workspace with the content of this digest */
export const trustInstructions: HandlerOf<"instructions"> = makeHandler(ROUTE_TABLE.trustInstructions);
/** `POST /v1/workspace-instructions/untrust`: Take the trust in the instructions of the workspace back */
export const untrustInstructions: HandlerOf<"instructions"> = makeHandler(ROUTE_TABLE.untrustInstructions);
/** `POST /v1/ws-ticket`: Single-use ticket for /ws/chat?ticket= */
export const wsTicket: HandlerOf<"tickets"> = makeHandler(ROUTE_TABLE.wsTicket);
/** `POST /v1/pairing-code`: Make a pairing code; an earlier one is void */
export const pairingCode: HandlerOf<"pairing"> = makeHandler(ROUTE_TABLE.pairingCode);
/** `GET /v1/tokens`: Tokens, newest first */
export const tokens: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.tokens);
/** `POST /v1/storage/rekey`: Encrypt up to 200 records with the new key; call it until complete is true */
export const rekey: HandlerOf<"rekey"> = makeHandler(ROUTE_TABLE.rekey);
/** `POST /v1/storage/check`: Look at every record for 3 s at most, and name those that are damaged */
export const checkRecords: HandlerOf<"store" | "kit"> = makeHandler(ROUTE_TABLE.checkRecords);
/** `GET /v1/tokens/:id`: One token's record */
export const token: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.token);
/** `POST /v1/tokens`: Make a token with a subset of the own scopes; without scopes it gets chat */
export const createToken: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.createToken);
/** `DELETE /v1/tokens/:id`: Revoke one token */
export const revokeToken: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.revokeToken);
/** `DELETE /v1/tokens`: Revoke every token */
export const revokeAllTokens: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.revokeAllTokens);
/** `GET /v1/audit`: Audit records, newest first */
export const audit: HandlerOf<"audit"> = makeHandler(ROUTE_TABLE.audit);
/** `GET /v1/audit/verify`: Check the audit's chain; every record that was altered, deleted, inserted or moved is named */
export const verifyAudit: HandlerOf<"audit"> = makeHandler(ROUTE_TABLE.verifyAudit);
/** `GET /v1/logs`: The last 1000 lines of the log, newest first, without secrets */
export const logs: HandlerOf<"recentLog"> = makeHandler(ROUTE_TABLE.logs);
/** `GET /openapi.json`: This description */
export const openApi: HandlerOf<"version"> = makeHandler(ROUTE_TABLE.openApi);
