/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * tarn_poll: the module's generic netlink interface, family "tarn_poll". It sets the weight of NAPIs: how many packets one poll may
 * take, for which the kernel has no interface. Commands are about the devices of the network namespace that the socket was opened
 * in, and need CAP_NET_ADMIN in the first user namespace.
 *
 * TARN_POLL_CMD_SET: sets the weight of a device's NAPIs, also of those that have come since the last time. Only NAPIs that have
 *   the kernel's weight, 64, are touched, and only those with a number, which NAPIs that only complete what was sent do not have.
 *   Refused with ENODEV where there is no such device, ENOSPC where there are TARN_POLL_DEVICES already; after ENOMEM, they have
 *   the kernel's weight.
 *
 *     DEVICE: u32      its index
 *     RULE: u32        enum tarn_poll_rule
 *     WEIGHT: u32      packets, 8 to 256; TARN_POLL_FIXED only. 64, the kernel's, ends what was set
 *
 * TARN_POLL_CMD_STOP: gives all NAPIs of this namespace's devices their weight back, or ENOENT. The same happens to a device that
 *   leaves the namespace, and to all of them when the module goes.
 *
 * TARN_POLL_CMD_GET: the NAPIs whose weight is set here, at most TARN_POLL_NAPIS in no order, or ENOENT.
 *
 *     NAPIS: array of struct tarn_poll_napi
 */
#ifndef TARN_POLL_UAPI_H
#define TARN_POLL_UAPI_H

#include <linux/types.h>

#define TARN_POLL_FAMILY "tarn_poll"
#define TARN_POLL_VERSION 1

/* The most devices whose NAPIs have their weight from here, in all namespaces. */
#define TARN_POLL_DEVICES 1024
/* The most NAPIs in an answer. */
#define TARN_POLL_NAPIS 1024

enum tarn_poll_command {
	TARN_POLL_CMD_UNSPEC,
	TARN_POLL_CMD_SET,
	TARN_POLL_CMD_STOP,
	TARN_POLL_CMD_GET,
};

enum tarn_poll_attribute {
	TARN_POLL_A_UNSPEC,
	TARN_POLL_A_DEVICE,
	TARN_POLL_A_RULE,
	TARN_POLL_A_WEIGHT,
	TARN_POLL_A_NAPIS,
	TARN_POLL_A_END,
};
#define TARN_POLL_A_MAX (TARN_POLL_A_END - 1)

enum tarn_poll_rule {
	/* The weight that is given. */
	TARN_POLL_FIXED,
	/* The rule of the Mountain Kernel: doubled after a full poll, up to 256; halved after one that was not half full, down to 16. */
	TARN_POLL_PUBLISHED,
};

struct tarn_poll_napi {
	__u32 device;		/* its index */
	__u32 napi;		/* the kernel's number of it */
	__u32 weight;		/* packets, now */
	__u32 rule;		/* enum tarn_poll_rule */
};

#endif
