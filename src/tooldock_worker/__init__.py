"""What runs inside a namespace's own interpreter.

It may run on another Python than the gateway, in an environment that holds little else, so it stands on the
standard library and pydantic alone and never imports the gateway.

    load       a folder of tool files in, callable tools, resources and prompts out
    schema     a function in, argument check and JSON Schemas out
    tools      tools: how they are described, bound and called
    readings   resources and prompts: how they are described, bound and read
    uris       URI templates; the gateway uses them too
    results    what a tool returned or raised in, JSON out; `contents` the same for resources and prompts
    context    what a running tool may ask of its caller
    light      the small `fastmcp` that tool files import where the real one is not installed
"""
