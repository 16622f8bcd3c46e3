/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The hash of a datagram's key. It is multilinear (Lemire and Kaser, "Strongly universal string hashing is fast", 2014): a sum of
 * 32-bit words, each times a random 64-bit number of its own. Whatever a sender chooses, two keys fall together in the upper
 * 32 bits as rarely as by chance. The sum of the first words, the source's, is a hash of the source.
 *
 * Which bits are whose: of the source's hash, the shard takes the highest 6, memory.c the lowest 12; of the key's, the table takes
 * the lowest.
 */
#ifndef TARN_REASSEMBLY_HASH_H
#define TARN_REASSEMBLY_HASH_H

#include "plain.h"

/* 64-bit words of a key; of those, the first family's, IPv4. */
#define KEY_WORDS 6
#define KEY_WORDS_FIRST 3

struct hash_numbers {
	u64 number[1 + 2 * KEY_WORDS];
};

static inline u64 sum_begin(const struct hash_numbers *numbers)
{
	return numbers->number[0];
}

/* Adds half of the word at `index` of the key, 0 the lower one. */
static inline u64 sum_half(const struct hash_numbers *numbers, u64 sum, u32 index, u32 half, u32 word)
{
	return sum + numbers->number[1 + 2 * index + half] * word;
}

static inline u64 sum_word(const struct hash_numbers *numbers, u64 sum, u32 index, u64 word)
{
	sum = sum_half(numbers, sum, index, 0, word);
	return sum_half(numbers, sum, index, 1, word >> 32);
}

/*
 * Keys that follow each other make sums that do so, too, which fill some places and not others: a step that is not linear ends
 * that.
 */
static inline u32 sum_hash(u64 sum)
{
	u32 hash = sum >> 32;

	hash = (hash ^ hash >> 16) * 0x85ebca6b;
	return hash ^ hash >> 13;
}

#define HASH_SHARDS 64
#define HASH_BUCKETS 256

static inline u32 hash_shard(u32 source_hash)
{
	return source_hash / (u32)((1ULL << 32) / HASH_SHARDS);
}

static inline u32 hash_bucket(u32 hash)
{
	return hash % HASH_BUCKETS;
}

#endif
