/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which devices a BPF program measures, and by which slot. The agent writes it (slots.rs).
 *
 * What is not an uplink has to be known at once, because a program may be called for every packet of every device: by an array over
 * the low bits of the device's index, which lies in the program's own data and costs no call. Another namespace's device may have
 * the same index, so that whoever has found a slot asks whose it is.
 */
#ifndef TARN_PATHS_SLOTS_H
#define TARN_PATHS_SLOTS_H

#include "device.h"
#include "shared.h"

/* Nothing else may lie in a program's zeroed data (.bss), which the agent writes as a whole: these two, in this order. */
__u16 slots[INDEXES];
struct path_device devices[SLOTS];

/* The slot that the low bits of a device's index lead to; 0, which is nobody's, for most. The verifier wants it below SLOTS. */
static __always_inline __u32 find_slot(struct net_device *device)
{
	__u32 index = device->ifindex;

	return slots[index & (INDEXES - 1)];
}

/* Whether a slot, from 1 to below SLOTS, is this device's. */
static __always_inline bool is_slot_of(__u32 slot, struct net_device *device)
{
	return is_device(device, &devices[slot]);
}

#endif
