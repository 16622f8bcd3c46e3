/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Internet checksums by difference: RFC 1624, equation 3, HC' = ~(~HC + ~m + m').
 *
 * All sums are of 16-bit words as they lie in the packet, which one's complement addition permits in either byte
 * order (RFC 1071, section 2 B). A 32-bit sum of at most 65535 words cannot overflow.
 */
#ifndef TARN_REDIRECT_CHECKSUM_H
#define TARN_REDIRECT_CHECKSUM_H

static __always_inline __u16 fold(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Of two folded sums: at most 0x1fffe, so one fold leaves no carry. */
static __always_inline __u16 add_folded(__u16 a, __u16 b)
{
	__u32 sum = (__u32)a + b;

	return (sum & 0xffff) + (sum >> 16);
}

static __always_inline __u16 adjust_checksum(__u16 checksum, __u16 difference)
{
	return ~add_folded(~checksum, difference);
}

static __always_inline __u16 word_difference(__u16 old, __u16 new)
{
	return add_folded(~old, new);
}

static __always_inline __u16 address_difference(const struct address *old, const struct address *new)
{
	__u32 sum = 0;

	for (int i = 0; i < 4; i++) {
		__u32 gone = ~old->word[i];
		__u32 come = new->word[i];

		sum += (gone & 0xffff) + (gone >> 16) + (come & 0xffff) + (come >> 16);
	}
	return fold(sum);
}

#endif
