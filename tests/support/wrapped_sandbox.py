"""A sandbox around another one: as it is, but for what a test makes of its commands."""

from app.sandbox.base import CompletedCommand, Executor, Sandbox, SandboxCommand


class WrappedSandbox(Executor):
    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.key, self.isolated = sandbox.key, sandbox.isolated
        self.left_out, self.created = sandbox.left_out, sandbox.created

    async def execute(self, command: SandboxCommand) -> CompletedCommand:
        return await self.sandbox.exec(
            command.argv,
            timeout=command.timeout,
            stdin=command.stdin,
            env=command.env,
            cwd=command.cwd,
            separate_stderr=command.separate_stderr,
            on_output=command.on_output,
        )

    async def close(self) -> None:
        await self.sandbox.close()

    async def destroy(self) -> None:
        await self.sandbox.destroy()
