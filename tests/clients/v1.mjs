// The TypeScript SDK's first major version: handshake revisions over streamable HTTP, HTTP+SSE and stdio.
// node v1.mjs '{"transport": "http", "url": "...", "headers": {...}}' prints what it saw as JSON.
import { createRequire } from 'node:module';

const require = createRequire(new URL('../node/package.json', import.meta.url));
const { Client } = require('@modelcontextprotocol/sdk/client/index.js');
const { SSEClientTransport } = require('@modelcontextprotocol/sdk/client/sse.js');
const { StdioClientTransport } = require('@modelcontextprotocol/sdk/client/stdio.js');
const { StreamableHTTPClientTransport } = require('@modelcontextprotocol/sdk/client/streamableHttp.js');
const { ElicitRequestSchema } = require('@modelcontextprotocol/sdk/types.js');

const plan = JSON.parse(process.argv[2]);
const requestInit = { headers: plan.headers ?? {} };
const transports = {
  http: () => new StreamableHTTPClientTransport(new URL(plan.url), { requestInit }),
  sse: () =>
    new SSEClientTransport(new URL(plan.url), {
      requestInit,
      eventSourceInit: { fetch: (url, init) => fetch(url, { ...init, headers: { ...init?.headers, ...plan.headers } }) },
    }),
  stdio: () => new StdioClientTransport({ command: plan.command, args: plan.args, env: plan.env, stderr: 'inherit' }),
};
const transport = transports[plan.transport]();
const client = new Client({ name: 'v1', version: '1.0.0' }, { capabilities: { elicitation: {} } });
client.setRequestHandler(ElicitRequestSchema, async () => ({ action: 'accept', content: { name: 'Alice' } }));

const text = (result) => result.content[0].text;
const seen = {};
let negotiated;
const setProtocolVersion = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  negotiated = version;
  setProtocolVersion?.(version);
};
await client.connect(transport);
seen.revision = negotiated;
seen.server = client.getServerVersion().name;
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
seen.text = text(await client.callTool({ name: 'test_simple_text', arguments: {} }));
const failed = await client.callTool({ name: 'test_error_handling', arguments: {} });
seen.failed = [failed.isError, text(failed)];
seen.unknown = await client.callTool({ name: 'no_such_tool', arguments: {} }).then(
  () => null,
  (error) => error.code,
);
seen.progress = [];
await client.callTool({ name: 'test_tool_with_progress', arguments: {} }, undefined, {
  onprogress: (step) => seen.progress.push(step.progress),
});
seen.resource = (await client.readResource({ uri: 'test://static-text' })).contents[0].text;
seen.template = JSON.parse((await client.readResource({ uri: 'test://template/7/data' })).contents[0].text).id;
const asked = { name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } };
seen.prompt = (await client.getPrompt(asked)).messages[0].content.text;
const reference = { type: 'ref/prompt', name: 'test_prompt_with_choice' };
seen.completion = (
  await client.complete({ ref: reference, argument: { name: 'tone', value: 'fr' } })
).completion.values;
if (plan.elicits) {
  seen.elicited = text(await client.callTool({ name: 'test_input_required_result_elicitation', arguments: {} }));
}
if (plan.transport === 'http') await transport.terminateSession();
await client.close();
console.log(JSON.stringify(seen));
