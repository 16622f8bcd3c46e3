/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's types for the architecture that is built for; see vmlinux.types. */
#pragma once

#if defined(__TARGET_ARCH_x86)
#include "vmlinux-x86_64-6.12.117+deb13-cloud-amd64.h"
#elif defined(__TARGET_ARCH_arm64)
#include "vmlinux-aarch64-6.12.118+deb13-cloud-arm64.h"
#else
#error "no kernel types for this architecture yet: extend scripts/vmlinux-header, then run `make vmlinux`"
#endif

/* Enumerators of the kernel's own, which its type information names in small letters. */
#define false 0
#define true 1
