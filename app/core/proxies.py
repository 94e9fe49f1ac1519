"""Whether a host is reached past the proxy, by the variable NO_PROXY."""


def bypasses_proxy(no_proxy: str, host: str, port: int | None = None) -> bool:
    """True if the list names the host, a domain above it, the host with its port, or everything (`*`)."""
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    names = [name.strip().lower() for name in no_proxy.split(",") if name.strip()]
    ends = tuple(f".{name.lstrip('*.')}" for name in names)
    return "*" in names or any(f".{name.lower()}".endswith(ends) for name in (host, authority))
