/**
 * The handlers of the package, `postern/handlers`: every endpoint as a function of its parts, which gives a plain `(Request) => Response`.
 * Path parameters are read from the URL. Their routes are in routes.ts, by the same names.
 */
import { type HandlerOf, makeHandler, makeSocketHandler, type SocketHandlerOf } from "./make_handler.ts";
import { ROUTE_TABLE } from "./routes.ts";

export type { HandlerOf, HandlerParts, Part, Sender, SocketHandlerOf } from "./make_handler.ts";

export const dashboard: HandlerOf<"config" | "programName"> = makeHandler(ROUTE_TABLE.dashboard);
export const health: HandlerOf<"facts"> = makeHandler(ROUTE_TABLE.health);
export const live: HandlerOf<never> = makeHandler(ROUTE_TABLE.live);
export const metrics: HandlerOf<"metrics"> = makeHandler(ROUTE_TABLE.metrics);
export const status: HandlerOf<"facts"> = makeHandler(ROUTE_TABLE.status);
export const pair: HandlerOf<"pairing"> = makeHandler(ROUTE_TABLE.pair);
export const ping: HandlerOf<never> = makeHandler(ROUTE_TABLE.ping);
export const webhook: HandlerOf<"agent" | "tools" | "webhooks"> = makeHandler(ROUTE_TABLE.webhook);
export const chat: HandlerOf<"agent" | "tools"> = makeHandler(ROUTE_TABLE.chat);
export const chatCompletions: HandlerOf<"agent" | "kit" | "tools"> = makeHandler(ROUTE_TABLE.chatCompletions);
export const responses: HandlerOf<"agent" | "kit" | "store" | "tools"> = makeHandler(ROUTE_TABLE.responses);
export const compactResponse: HandlerOf<"agent" | "kit" | "store" | "tools"> = makeHandler(ROUTE_TABLE.compactResponse);
export const countResponseTokens: HandlerOf<"agent" | "kit" | "store"> = makeHandler(ROUTE_TABLE.countResponseTokens);
export const response: HandlerOf<"agent" | "storedRuns" | "store" | "kit"> = makeHandler(ROUTE_TABLE.response);
export const responseInputItems: HandlerOf<"agent" | "storedRuns" | "store"> = makeHandler(
  ROUTE_TABLE.responseInputItems,
);
export const cancelResponse: HandlerOf<"agent" | "store" | "kit"> = makeHandler(ROUTE_TABLE.cancelResponse);
export const deleteResponse: HandlerOf<"agent" | "storedRuns" | "store" | "conversations"> = makeHandler(
  ROUTE_TABLE.deleteResponse,
);
export const messages: HandlerOf<"agent" | "kit" | "tools"> = makeHandler(ROUTE_TABLE.messages);
export const countTokens: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.countTokens);
export const embeddings: HandlerOf<"agent" | "config"> = makeHandler(ROUTE_TABLE.embeddings);
export const chatSocket: SocketHandlerOf<"agent" | "approvals" | "kit" | "sockets"> = makeSocketHandler(
  ROUTE_TABLE.chatSocket,
);
export const models: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.models);
export const model: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.model);
export const trustModelServer: HandlerOf<"trustModelServer"> = makeHandler(ROUTE_TABLE.trustModelServer);
export const legacyWebhook: HandlerOf<"agent" | "tools"> = makeHandler(ROUTE_TABLE.legacyWebhook);
export const startRun: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.startRun);
export const runs: HandlerOf<"agent" | "storedRuns"> = makeHandler(ROUTE_TABLE.runs);
export const runBrowser: HandlerOf<"agent" | "storedRuns" | "browserOf"> = makeHandler(ROUTE_TABLE.runBrowser);
export const run: HandlerOf<"agent" | "storedRuns"> = makeHandler(ROUTE_TABLE.run);
export const cancelRun: HandlerOf<"agent" | "kit"> = makeHandler(ROUTE_TABLE.cancelRun);
export const resolveRun: HandlerOf<"agent"> = makeHandler(ROUTE_TABLE.resolveRun);
export const runEvents: HandlerOf<"agent" | "storedRuns" | "kit"> = makeHandler(ROUTE_TABLE.runEvents);
export const clusterRunEvents: HandlerOf<"agent" | "cluster" | "kit"> = makeHandler(ROUTE_TABLE.clusterRunEvents);
export const conversations: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.conversations);
export const conversation: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.conversation);
export const renameConversation: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.renameConversation);
export const deleteConversations: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.deleteConversations);
export const deleteConversation: HandlerOf<"conversations"> = makeHandler(ROUTE_TABLE.deleteConversation);
export const memory: HandlerOf<"memory"> = makeHandler(ROUTE_TABLE.memory);
export const deleteMemory: HandlerOf<"memory"> = makeHandler(ROUTE_TABLE.deleteMemory);
export const tools: HandlerOf<"tools"> = makeHandler(ROUTE_TABLE.tools);
export const tool: HandlerOf<"tools"> = makeHandler(ROUTE_TABLE.tool);
export const callTool: HandlerOf<"tools" | "calls"> = makeHandler(ROUTE_TABLE.callTool);
export const enableTool: HandlerOf<"tools" | "turnOnTool"> = makeHandler(ROUTE_TABLE.enableTool);
export const mcpRecords: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.mcpRecords);
export const forgetMcpRecord: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.forgetMcpRecord);
export const mcpServers: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.mcpServers);
export const mcpServer: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.mcpServer);
export const enableMcpServer: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.enableMcpServer);
export const acceptMcpTools: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.acceptMcpTools);
export const disableMcpServer: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.disableMcpServer);
export const restartMcpServer: HandlerOf<"mcpServers"> = makeHandler(ROUTE_TABLE.restartMcpServer);
export const mcp: HandlerOf<"mcp"> = makeHandler(ROUTE_TABLE.mcp);
export const mcpStream: HandlerOf<"mcp"> = makeHandler(ROUTE_TABLE.mcpStream);
export const endMcpSession: HandlerOf<"mcp"> = makeHandler(ROUTE_TABLE.endMcpSession);
export const approvals: HandlerOf<"approvals"> = makeHandler(ROUTE_TABLE.approvals);
export const approval: HandlerOf<"approvals"> = makeHandler(ROUTE_TABLE.approval);
export const answerApproval: HandlerOf<"approvals" | "agent" | "tools" | "workspaceRoot"> = makeHandler(
  ROUTE_TABLE.answerApproval,
);
export const approvalRules: HandlerOf<"approvals"> = makeHandler(ROUTE_TABLE.approvalRules);
export const revokeApprovalRule: HandlerOf<"approvals"> = makeHandler(ROUTE_TABLE.revokeApprovalRule);
export const halts: HandlerOf<"halts"> = makeHandler(ROUTE_TABLE.halts);
export const halt: HandlerOf<"halts"> = makeHandler(ROUTE_TABLE.halt);
export const resume: HandlerOf<"halts"> = makeHandler(ROUTE_TABLE.resume);
export const taintedFiles: HandlerOf<"taintedFiles" | "workspaceRoot"> = makeHandler(ROUTE_TABLE.taintedFiles);
export const clearTaint: HandlerOf<"taintedFiles" | "workspaceRoot"> = makeHandler(ROUTE_TABLE.clearTaint);
export const schedules: HandlerOf<"cron"> = makeHandler(ROUTE_TABLE.schedules);
export const schedule: HandlerOf<"cron"> = makeHandler(ROUTE_TABLE.schedule);
export const scheduleHistory: HandlerOf<"cron"> = makeHandler(ROUTE_TABLE.scheduleHistory);
export const runSchedule: HandlerOf<"agent" | "cron"> = makeHandler(ROUTE_TABLE.runSchedule);
export const deliveries: HandlerOf<"deliveries"> = makeHandler(ROUTE_TABLE.deliveries);
export const resolveDelivery: HandlerOf<"deliveries"> = makeHandler(ROUTE_TABLE.resolveDelivery);
export const testNotify: HandlerOf<"deliveries"> = makeHandler(ROUTE_TABLE.testNotify);
export const answerPage: HandlerOf<"answerLinks"> = makeHandler(ROUTE_TABLE.answerPage);
export const answer: HandlerOf<"answerLinks"> = makeHandler(ROUTE_TABLE.answer);
export const nodeSocket: SocketHandlerOf<"nodes" | "kit" | "sockets"> = makeSocketHandler(ROUTE_TABLE.nodeSocket);
export const nodes: HandlerOf<"nodes"> = makeHandler(ROUTE_TABLE.nodes);
export const node: HandlerOf<"nodes"> = makeHandler(ROUTE_TABLE.node);
export const describeNode: HandlerOf<"nodes"> = makeHandler(ROUTE_TABLE.describeNode);
export const invokeNode: HandlerOf<"nodes" | "calls"> = makeHandler(ROUTE_TABLE.invokeNode);
export const clusterNodeCall: HandlerOf<"nodes" | "cluster" | "kit"> = makeHandler(ROUTE_TABLE.clusterNodeCall);
export const clusterNodeDescribe: HandlerOf<"nodes" | "cluster" | "kit"> = makeHandler(ROUTE_TABLE.clusterNodeDescribe);
export const mcpChange: HandlerOf<"audit"> = makeHandler(ROUTE_TABLE.mcpChange);
export const mcpLogin: HandlerOf<"mcpSignIn"> = makeHandler(ROUTE_TABLE.mcpLogin);
export const completeMcpLogin: HandlerOf<"mcpSignIn"> = makeHandler(ROUTE_TABLE.completeMcpLogin);
export const removeMcpLogin: HandlerOf<"mcpSignIn"> = makeHandler(ROUTE_TABLE.removeMcpLogin);
export const cluster: HandlerOf<"cluster" | "config" | "stateReason"> = makeHandler(ROUTE_TABLE.cluster);
export const clusterRuns: HandlerOf<"cluster" | "config"> = makeHandler(ROUTE_TABLE.clusterRuns);
export const clusterLink: HandlerOf<"kit" | "cluster"> = makeHandler(ROUTE_TABLE.clusterLink);
export const drainGateway: HandlerOf<"audit" | "cluster" | "config"> = makeHandler(ROUTE_TABLE.drainGateway);
export const forgetFolder: HandlerOf<"audit" | "cluster" | "config"> = makeHandler(ROUTE_TABLE.forgetFolder);
export const browserLogins: HandlerOf<"browserLogins"> = makeHandler(ROUTE_TABLE.browserLogins);
export const saveBrowserLogin: HandlerOf<"browserLogins"> = makeHandler(ROUTE_TABLE.saveBrowserLogin);
export const removeBrowserLogin: HandlerOf<"browserLogins"> = makeHandler(ROUTE_TABLE.removeBrowserLogin);
export const plugins: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.plugins);
export const plugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.plugin);
export const installPlugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.installPlugin);
export const enablePlugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.enablePlugin);
export const disablePlugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.disablePlugin);
export const removePlugin: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.removePlugin);
export const searchPlugins: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.searchPlugins);
export const installFromRegistry: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.installFromRegistry);
export const trustPluginKey: HandlerOf<"plugins"> = makeHandler(ROUTE_TABLE.trustPluginKey);
export const skills: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.skills);
export const skill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.skill);
export const testSkill: HandlerOf<"tools" | "skills"> = makeHandler(ROUTE_TABLE.testSkill);
export const installSkill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.installSkill);
export const installSkillFromGit: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.installSkillFromGit);
export const trustSkill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.trustSkill);
export const untrustSkill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.untrustSkill);
export const removeSkill: HandlerOf<"skills"> = makeHandler(ROUTE_TABLE.removeSkill);
export const instructions: HandlerOf<"instructions"> = makeHandler(ROUTE_TABLE.instructions);
export const trustInstructions: HandlerOf<"instructions"> = makeHandler(ROUTE_TABLE.trustInstructions);
export const untrustInstructions: HandlerOf<"instructions"> = makeHandler(ROUTE_TABLE.untrustInstructions);
export const wsTicket: HandlerOf<"tickets"> = makeHandler(ROUTE_TABLE.wsTicket);
export const pairingCode: HandlerOf<"pairing"> = makeHandler(ROUTE_TABLE.pairingCode);
export const tokens: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.tokens);
export const rekey: HandlerOf<"rekey"> = makeHandler(ROUTE_TABLE.rekey);
export const checkRecords: HandlerOf<"store" | "kit"> = makeHandler(ROUTE_TABLE.checkRecords);
export const token: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.token);
export const createToken: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.createToken);
export const revokeToken: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.revokeToken);
export const revokeAllTokens: HandlerOf<"tokens"> = makeHandler(ROUTE_TABLE.revokeAllTokens);
export const audit: HandlerOf<"audit"> = makeHandler(ROUTE_TABLE.audit);
export const verifyAudit: HandlerOf<"audit"> = makeHandler(ROUTE_TABLE.verifyAudit);
export const logs: HandlerOf<"recentLog"> = makeHandler(ROUTE_TABLE.logs);
export const openApi: HandlerOf<"version"> = makeHandler(ROUTE_TABLE.openApi);
