"""What Linux gives for keeping a process in: Landlock, seccomp, namespaces. Thin, over system calls."""
