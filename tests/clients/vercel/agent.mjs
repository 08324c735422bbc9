// Runs an agent with the Vercel AI SDK for each line on stdin; what it gives its user is a line on stdout.
// {"root": "http://127.0.0.1:8787", "api": "responses", "streamed": true, "question": "…"}
import { createInterface } from 'node:readline';
import { createAnthropic } from '@ai-sdk/anthropic';
import { createOpenAI } from '@ai-sdk/openai';
import { APICallError, generateText, RetryError, stepCountIs, streamText, tool } from 'ai';
import { z } from 'zod';

globalThis.AI_SDK_LOG_WARNINGS = false; // they would go to stdout

const models = {
  responses: (settings) => createOpenAI(settings)('m'),
  chat: (settings) => createOpenAI(settings).chat('m'),
  anthropic: (settings) => createAnthropic(settings)('claude-m'),
};

const tools = {
  get_order: tool({
    description: 'The status of an order.',
    inputSchema: z.object({ order_id: z.string() }),
    execute: async ({ order_id }) => `order ${order_id} is shipped`,
  }),
  count_stock: tool({
    description: 'How many pieces are left.',
    inputSchema: z.object({ item: z.string(), size: z.string() }),
    execute: async ({ item }) => `42 pieces of ${item}`,
  }),
};

// The SDK's own clock, and ids that it makes up where the API has none, are not the endpoint's.
const madeUp = new Set(['timestamp', 'messageId', 'request']);
const plain = (key, value) => (madeUp.has(key) || String(value).startsWith('aitxt-') ? undefined : value);

const described = (step) => ({
  text: step.text,
  reasoning: step.reasoningText,
  calls: step.toolCalls,
  results: step.toolResults,
  finish: step.finishReason,
  usage: step.usage,
  response: { id: step.response.id, model: step.response.modelId, headers: step.response.headers },
});

function failure(error) {
  const last = RetryError.isInstance(error) ? error.lastError : error;
  const known = APICallError.isInstance(last);
  return {
    kind: last?.name,
    text: last?.message ?? String(last),
    ...(known && {
      status: last.statusCode,
      retryable: last.isRetryable,
      headers: last.responseHeaders,
      body: last.responseBody,
    }),
  };
}

async function run({ root, api, streamed, question }) {
  const model = models[api]({ baseURL: `${root}/v1`, apiKey: 'k-1' });
  const ask = { model, tools, prompt: question, stopWhen: stepCountIs(6), maxRetries: 1 };
  if (!streamed) {
    const result = await generateText(ask);
    return { text: result.text, steps: result.steps.map(described), usage: result.totalUsage };
  }
  let failed;
  const result = streamText({ ...ask, onError: ({ error }) => (failed ??= error) });
  const parts = [];
  for await (const part of result.fullStream) parts.push(part.type === 'error' ? { type: 'error' } : part);
  if (failed !== undefined) throw failed;
  return {
    text: (await result.steps).at(-1).text,
    steps: (await result.steps).map(described),
    usage: await result.totalUsage,
    parts,
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const told = await run(JSON.parse(line)).catch((error) => ({ failed: failure(error) }));
  process.stdout.write(`${JSON.stringify(told, plain)}\n`);
}
