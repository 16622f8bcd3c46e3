/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What steer.bpf.c, existing.bpf.c and user space share.
 */
#ifndef TARN_PACE_STEER_H
#define TARN_PACE_STEER_H

/* Prefixes of destinations at most. */
#define DESTINATIONS_MOST 65536

/* A prefix of destinations: its family, so that no IPv6 prefix holds IPv4 addresses, and its address, of IPv4 as ::ffff:a.b.c.d. */
struct pace_destination {
	__u32 length;		/* bits, those of the family included */
	__u8 family[4];		/* 4 or 6, and zeros */
	__u8 address[16];
};

#define FAMILY_BITS 32

/* Makes a prefix of one address of what its `address` holds. Sockets of IPv6 speak to IPv4 addresses, too. */
static inline __attribute__((always_inline)) void make_whole(struct pace_destination *one)
{
	const __u32 *words = (const __u32 *)one->address;
	int is_mapped = !words[0] && !words[1] && !one->address[8] && !one->address[9] && one->address[10] == 0xff &&
			one->address[11] == 0xff;

	one->length = FAMILY_BITS + 128;
	one->family[0] = is_mapped ? 4 : 6;
	one->family[1] = one->family[2] = one->family[3] = 0;
}

/* What became of open connections that were to take another congestion control. */
struct pace_chosen {
	__u64 taken;
	__u64 refused;		/* by the kernel: there is none of the name just then */
};

#endif
