// SPDX-License-Identifier: GPL-2.0
/* memory.c and hash.h for the tests in Rust: what is written out in the headers becomes callable, and structures stay C's own. */
#include <stdlib.h>

#include "../../kmod/memory.h"

struct shim_memory {
	struct memory memory;
	struct memory_shard shards[MEMORY_SHARDS];
};

struct shim_entry {
	struct memory_entry entry;
	u32 shard;
	u64 tag;
};

struct shim_memory *shim_memory_new(u64 ceiling, u64 share)
{
	struct shim_memory *shim = calloc(1, sizeof(*shim));
	u32 i;

	if (!shim)
		return NULL;
	shim->memory.ceiling = ceiling;
	shim->memory.share = share;
	for (i = 0; i < MEMORY_SHARDS; i++) {
		shim->memory.shards[i] = &shim->shards[i];
		memory_shard_init(&shim->memory, i);
	}
	return shim;
}

/* Once nothing is held. */
void shim_memory_free(struct shim_memory *shim)
{
	free(shim);
}

/* As the module's datagram_begin(); NULL without memory. */
struct shim_entry *shim_memory_begin(struct shim_memory *shim, u64 address, u8 family, u32 hash, u64 tag, u64 born, u32 now)
{
	struct memory_address from = { .address = address, .family = family };
	struct shim_entry *entry = calloc(1, sizeof(*entry));
	u32 shard = hash_shard(hash);
	struct memory_source *source = memory_find(&shim->shards[shard], &from, hash);

	if (!source && entry) {
		source = calloc(1, sizeof(*source));
		if (source) {
			source->address = from;
			source->hash = hash;
			memory_add_source(&shim->shards[shard], source);
		}
	}
	if (!source) {
		free(entry);
		return NULL;
	}
	entry->shard = shard;
	entry->tag = tag;
	memory_begin(&shim->memory, shard, &entry->entry, source, born, now);
	return entry;
}

void shim_memory_charge(struct shim_memory *shim, struct shim_entry *entry, s32 bytes)
{
	memory_charge(&shim->memory, entry->shard, &entry->entry, bytes);
	memory_note_most(&shim->memory);
}

/* The entry's source has completed a datagram. */
void shim_memory_completed(struct shim_memory *shim, const struct shim_entry *entry, u32 now)
{
	memory_completed(&shim->shards[entry->shard], entry->entry.source, now);
}

/* Ends the entry and frees it, and its source where that holds nothing any more, which is returned. */
bool shim_memory_end(struct shim_memory *shim, struct shim_entry *entry)
{
	struct memory_source *source = entry->entry.source;
	bool is_out = memory_end(&shim->memory, entry->shard, &entry->entry);

	if (is_out)
		free(source);
	free(entry);
	return is_out;
}

/* Returns the reason, or -1: there is nothing to give up. */
int shim_memory_choose(const struct shim_memory *shim, u32 *shard)
{
	struct memory_choice choice;

	if (!memory_choose(&shim->memory, &choice))
		return -1;
	*shard = choice.shard;
	return choice.reason;
}

/* The tag of the entry to give up, or -1. */
long shim_memory_victim(const struct shim_memory *shim, int reason, u32 shard)
{
	struct memory_choice choice = { .reason = reason, .shard = shard };
	struct memory_entry *entry = memory_victim(&shim->memory, &choice);

	return entry ? (long)container_of(entry, struct shim_entry, entry)->tag : -1;
}

bool shim_memory_is_full(const struct shim_memory *shim)
{
	return memory_is_full(&shim->memory);
}

bool shim_memory_is_stranger(const struct shim_entry *entry)
{
	return entry->entry.is_stranger;
}

u64 shim_memory_bytes(const struct shim_entry *entry)
{
	return entry->entry.bytes;
}

u64 shim_memory_source_bytes(const struct shim_entry *entry)
{
	return entry->entry.source->bytes;
}

struct shim_sums {
	u64 held, strangers, most;
};

struct shim_sums shim_memory_sums(const struct shim_memory *shim)
{
	const struct memory *memory = &shim->memory;

	return (struct shim_sums){ memory->held.value, memory->strangers.value, memory->most };
}

struct shim_shard {
	u64 oldest_known, oldest_stranger, largest;
	u32 datagrams, sources;
};

struct shim_shard shim_memory_shard(const struct shim_memory *shim, u32 shard)
{
	const struct memory *memory = &shim->memory;

	return (struct shim_shard){ memory->oldest[0][shard], memory->oldest[1][shard], memory->largest[shard],
				    shim->shards[shard].datagrams, shim->shards[shard].source_count };
}

/* The tag of the oldest entry of a list of `ages`, or -1. */
long shim_memory_oldest(struct shim_memory *shim, u32 shard, bool is_stranger, bool is_second)
{
	struct memory_entry *entry = memory_oldest(&shim->shards[shard], is_stranger, is_second);

	return entry ? (long)container_of(entry, struct shim_entry, entry)->tag : -1;
}

void shim_memory_failed(struct shim_memory *shim, u32 shard, u64 address, u8 family)
{
	struct memory_address from = { .address = address, .family = family };

	memory_failed(&shim->shards[shard], &from);
}

/* One of the sources whose failures a shard counts. Returns the count, 0 where there is none. */
u64 shim_memory_watched(const struct shim_memory *shim, u32 shard, u32 index, u64 *address, u8 *family)
{
	const struct memory_watched *watched = &shim->shards[shard].watched[index];

	*address = watched->address.address;
	*family = watched->address.family;
	return watched->failed;
}

/* Of a key of `words` words, whose first `source` halves are the source's: the source's hash above, the key's below. */
u64 shim_hash(const struct hash_numbers *numbers, const u64 *key, u32 words, u32 source)
{
	u64 sum = sum_begin(numbers);
	u32 i, of_source = 0;

	for (i = 0; i < 2 * words; i++) {
		sum = sum_half(numbers, sum, i / 2, i % 2, key[i / 2] >> i % 2 * 32);
		if (i + 1 == source)
			of_source = sum_hash(sum);
	}
	return (u64)of_source << 32 | sum_hash(sum);
}

u32 shim_hash_shard(u32 source)
{
	return hash_shard(source);
}

u32 shim_hash_bucket(u32 hash)
{
	return hash_bucket(hash);
}
