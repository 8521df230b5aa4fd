// The TypeScript SDK's second major version: both eras, over streamable HTTP and stdio.
// node v2.mjs '{"transport": "http", "url": "...", "headers": {...}, "era": "auto"}' prints what it saw as JSON.
import { createRequire } from 'node:module';

const require = createRequire(new URL('../node/package.json', import.meta.url));
const { Client, StreamableHTTPClientTransport } = require('@modelcontextprotocol/client');
const { StdioClientTransport } = require('@modelcontextprotocol/client/stdio');

const plan = JSON.parse(process.argv[2]);
const transport =
  plan.transport === 'http'
    ? new StreamableHTTPClientTransport(new URL(plan.url), { requestInit: { headers: plan.headers ?? {} } })
    : new StdioClientTransport({ command: plan.command, args: plan.args, env: plan.env, stderr: 'inherit' });
const client = new Client(
  { name: 'v2', version: '1.0.0' },
  { capabilities: { elicitation: { form: {} } }, versionNegotiation: { mode: plan.era } },
);
client.setRequestHandler('elicitation/create', async () => ({ action: 'accept', content: { name: 'Alice' } }));

const text = (result) => result.content[0].text;
const seen = {};
await client.connect(transport);
seen.revision = client.getNegotiatedProtocolVersion();
seen.server = client.getServerVersion()?.name;
seen.tools = (await client.listTools()).tools.map((tool) => tool.name);
seen.text = text(await client.callTool({ name: 'test_simple_text', arguments: {} }));
const failed = await client.callTool({ name: 'test_error_handling', arguments: {} });
seen.failed = [failed.isError, text(failed)];
seen.unknown = await client.callTool({ name: 'no_such_tool', arguments: {} }).then(
  () => null,
  (error) => error.code,
);
seen.progress = [];
await client.callTool(
  { name: 'test_tool_with_progress', arguments: {} },
  { onprogress: (step) => seen.progress.push(step.progress) },
);
// Listed first, so that the client knows which arguments to repeat in headers.
seen.header = text(await client.callTool({ name: 'test_custom_header', arguments: { region: 'eu', query: 'q' } }));
seen.resource = (await client.readResource({ uri: 'test://static-text' })).contents[0].text;
seen.template = JSON.parse((await client.readResource({ uri: 'test://template/7/data' })).contents[0].text).id;
const asked = { name: 'test_prompt_with_arguments', arguments: { arg1: 'a', arg2: 'b' } };
seen.prompt = (await client.getPrompt(asked)).messages[0].content.text;
const reference = { type: 'ref/prompt', name: 'test_prompt_with_choice' };
seen.completion = (
  await client.complete({ ref: reference, argument: { name: 'tone', value: 'fr' } })
).completion.values;
seen.elicited = text(await client.callTool({ name: 'test_input_required_result_elicitation', arguments: {} }));
await client.close();
console.log(JSON.stringify(seen));
