"""Asks a gateway through client libraries, with a tool of the program's own: python3 libraries.py <url> <token> <model>"""

import asyncio
import json
import sys

import agents
import anthropic
import openai

url, token, model = sys.argv[1:]
PARAMETERS = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
FACTS = {"name": "exec_command", "description": "Runs a command"}
calls = 0


def exec_command(cmd: str) -> str:
    """Runs a command"""
    global calls
    calls += 1
    return f"ran {cmd} {calls}"


def chat(client, stream):
    messages = [{"role": "user", "content": "Work"}]
    asked = {"model": model, "messages": messages, "tools": [{"type": "function", "function": {**FACTS, "parameters": PARAMETERS}}]}
    while True:
        if stream:
            with client.chat.completions.stream(**asked) as events:
                message = events.get_final_completion().choices[0].message
        else:
            message = client.chat.completions.create(**asked).choices[0].message
        if not message.tool_calls:
            return message.content
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            output = exec_command(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": output})


def responses(client, stream):
    asked_input = [{"role": "user", "content": "Work"}]
    asked = {"model": model, "input": asked_input, "store": False, "tools": [{"type": "function", "strict": False, **FACTS, "parameters": PARAMETERS}]}
    while True:
        if stream:
            with client.responses.stream(**asked) as events:
                reply = events.get_final_response()
        else:
            reply = client.responses.create(**asked)
        made = [item for item in reply.output if item.type == "function_call"]
        if not made:
            return reply.output_text
        asked_input += [item.model_dump(exclude_none=True) for item in reply.output]
        for call in made:
            output = exec_command(**json.loads(call.arguments))
            asked_input.append({"type": "function_call_output", "call_id": call.call_id, "output": output})


def messages(client, stream):
    said = [{"role": "user", "content": "Work"}]
    asked = {"model": model, "max_tokens": 1000, "messages": said, "tools": [{**FACTS, "input_schema": PARAMETERS}]}
    while True:
        if stream:
            with client.messages.stream(**asked) as events:
                reply = events.get_final_message()
        else:
            reply = client.messages.create(**asked)
        if reply.stop_reason != "tool_use":
            return "".join(block.text for block in reply.content if block.type == "text")
        said.append({"role": "assistant", "content": reply.content})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": exec_command(**block.input)}
            for block in reply.content
            if block.type == "tool_use"
        ]
        said.append({"role": "user", "content": results})


async def run_agent(use_responses, stream):
    provider = agents.OpenAIProvider(api_key=token, base_url=f"{url}/v1", use_responses=use_responses)
    settings = agents.RunConfig(model_provider=provider, tracing_disabled=True)
    agent = agents.Agent(name="a", model=model, tools=[agents.function_tool(exec_command)])
    if not stream:
        return (await agents.Runner.run(agent, "Work", run_config=settings)).final_output
    result = agents.Runner.run_streamed(agent, "Work", run_config=settings)
    async for _ in result.stream_events():
        pass
    return result.final_output


async def main():
    global calls
    agents.set_tracing_disabled(True)
    client = openai.OpenAI(api_key=token, base_url=f"{url}/v1", max_retries=0)
    claude = anthropic.Anthropic(api_key=token, base_url=url, max_retries=0)
    for stream in (False, True):
        suffix = " stream" if stream else ""
        for name, work in {
            "openai chat": lambda: chat(client, stream),
            "openai responses": lambda: responses(client, stream),
            "anthropic": lambda: messages(claude, stream),
            "agents": lambda: run_agent(True, stream),
            "agents chat": lambda: run_agent(False, stream),
        }.items():
            calls = 0
            text = work()
            print(json.dumps([name + suffix, await text if asyncio.iscoroutine(text) else text, calls]), flush=True)


asyncio.run(main())
