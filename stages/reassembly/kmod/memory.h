/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Who may hold how much, and who goes first when the memory is full. It knows no packets and no clock; the same file runs in the
 * module and in simulations.
 *
 * Mainline's pool is one for everyone: full, it refuses even the fragment that would complete a datagram. Here a fragment of
 * a datagram that is held is always taken, and above the ceiling a datagram is given up:
 *
 *   BY_SHARE      the oldest of the source that holds most, where that is more than its share of the ceiling (1/8);
 *   BY_STRANGER   else the oldest of the sources that have completed none within a minute, while these hold more than a quarter
 *                 of the ceiling;
 *   BY_AGE        else the oldest of all.
 *
 * The share keeps one sender from filling the memory. Thousands of sources with a fragment each are below any share: they have
 * completed nothing, so they go before those who have. The quarter leaves room for newcomers: without it a few who have
 * made themselves known could hold everything for good.
 *
 * Sources, with everything that they hold, are divided among shards by a keyed hash. A shard is used under a lock of the caller's;
 * no function here touches two. What is compared between shards (hints, sums) is read without their locks and may be
 * a moment old: at worst the second-oldest is given up.
 */
#ifndef TARN_REASSEMBLY_MEMORY_H
#define TARN_REASSEMBLY_MEMORY_H

#include "hash.h"

#define MEMORY_SHARDS HASH_SHARDS
#define MEMORY_SOURCES 64	/* buckets of a shard */
#define MEMORY_NONE (~0ULL)

/* Of a shard: 4 places for each of 64 sets; so the newest 16,384 sources or so are remembered. */
#define MEMORY_SETS 64
#define MEMORY_WAYS 4
#define MEMORY_REMEMBERED 60	/* seconds after the last datagram that a source completed */

/*
 * An identifier may have been used again when its source has begun this many other datagrams since: there are 65,536, and mainline's
 * guard (ipfrag_max_dist) is 64 datagrams from anywhere, which a busy server reaches in milliseconds.
 */
#define MEMORY_REUSED 4096

/* Failures are counted for this many sources of a shard: see memory_failed(). */
#define MEMORY_WATCHED 4

enum memory_reason { BY_SHARE, BY_STRANGER, BY_AGE, MEMORY_REASONS };

/* An IPv4 address, or the first half of an IPv6 address: the other half is the host's to choose. */
struct memory_address {
	u64 address;
	u8 family;		/* 0: none; the second family is MEMORY_SECOND */
};

#define MEMORY_SECOND 10	/* AF_INET6 */

struct memory_source {
	struct memory_source *next;	/* in its bucket */
	struct memory_address address;
	u32 hash;
	u32 known_until;	/* seconds */
	u32 begun;		/* datagrams, for MEMORY_REUSED */
	u32 datagrams;		/* held now */
	u64 bytes;
	struct list_head held;	/* oldest first */
	struct list_head over;	/* in the shard's list, while above its share */
};

/* What is held of a datagram. */
struct memory_entry {
	struct list_head by_source;
	struct list_head by_age;
	struct memory_source *source;
	u64 born;		/* by the caller's clock; never earlier than of one that is there */
	u32 begun;
	u32 bytes;
	bool is_stranger;	/* its source was one when it began */
	bool is_second;		/* of the second family */
};

struct memory_watched {
	struct memory_address address;
	u64 failed;
};

struct memory_remembered {
	u32 tag;
	u32 until;
};

struct memory_shard {
	struct memory_source *sources[MEMORY_SOURCES];
	/* Entries, oldest first: of known sources, of strangers; and those of each family, whose timeouts differ. */
	struct list_head ages[2][2];
	struct list_head over;		/* sources above their share */
	u32 datagrams;
	u32 source_count;
	struct memory_watched watched[MEMORY_WATCHED];
	struct memory_remembered remembered[MEMORY_SETS][MEMORY_WAYS];
};

struct memory {
	u64 ceiling;
	u64 share;		/* bytes */
	atomic_long_t held;
	atomic_long_t strangers;
	u64 most;		/* that were held, ever */
	/* When the oldest of known sources and of strangers was born, or MEMORY_NONE; the most that one of `over` holds, or 0. */
	u64 oldest[2][MEMORY_SHARDS];
	u64 largest[MEMORY_SHARDS];
	struct memory_shard *shards[MEMORY_SHARDS];
};

/* A datagram to give up: see memory_victim(). */
struct memory_choice {
	enum memory_reason reason;
	u32 shard;
};

void memory_shard_init(struct memory *memory, u32 shard);

/* The source of an address, or NULL. */
struct memory_source *memory_find(const struct memory_shard *shard, const struct memory_address *address, u32 hash);

/* Adds a source that holds nothing. It is the caller's memory, zeroed, with address and hash. */
void memory_add_source(struct memory_shard *shard, struct memory_source *source);

/* Whether the source has completed a datagram lately. `now` in seconds. */
static inline bool memory_is_known(const struct memory_source *source, u32 now)
{
	return (s32)(source->known_until - now) > 0;
}

/* A datagram begins, completes, ends. At the end, returns whether the source holds nothing any more: then it is the caller's. */
void memory_begin(struct memory *memory, u32 shard, struct memory_entry *entry, struct memory_source *source, u64 born, u32 now);
void memory_completed(struct memory_shard *shard, struct memory_source *source, u32 now);
bool memory_end(struct memory *memory, u32 shard, struct memory_entry *entry);

/* A source went above its share, or below. */
void memory_rank(struct memory *memory, u32 shard, struct memory_source *source);

/* The oldest entry of a list of `ages`, or NULL. */
static inline struct memory_entry *memory_oldest(struct memory_shard *shard, bool is_stranger, bool is_second)
{
	return list_first_entry_or_null(&shard->ages[is_stranger][is_second], struct memory_entry, by_age);
}

/* The share has changed. */
void memory_rank_all(struct memory *memory, u32 shard);

/* What an entry holds has changed. */
static inline void memory_charge(struct memory *memory, u32 shard, struct memory_entry *entry, s32 bytes)
{
	struct memory_source *source = entry->source;
	atomic_long_add(bytes, &memory->held);
	entry->bytes += bytes;
	source->bytes += bytes;
	if (entry->is_stranger)
		atomic_long_add(bytes, &memory->strangers);
	if (unlikely(source->bytes > memory->share || !list_empty(&source->over)))
		memory_rank(memory, shard, source);
}

static inline bool memory_is_full(const struct memory *memory)
{
	return (u64)atomic_long_read(&memory->held) > READ_ONCE(memory->ceiling);
}

/* For figures: before a datagram ends, because only then becomes less, and when somebody looks; not at each fragment. */
static inline void memory_note_most(struct memory *memory)
{
	u64 held = atomic_long_read(&memory->held);

	if (held > READ_ONCE(memory->most))
		WRITE_ONCE(memory->most, held);
}

/* Which shard has to give a datagram up, and why. Without locks. False: none has one. */
bool memory_choose(const struct memory *memory, struct memory_choice *choice);

/* The datagram, under the shard's lock; NULL when it has gone meanwhile. */
struct memory_entry *memory_victim(const struct memory *memory, const struct memory_choice *choice);

/* Counts a datagram that failed. Of as many sources as there are, the most frequent stay (Metwally's Space-Saving, ICDT 2005). */
void memory_failed(struct memory_shard *shard, const struct memory_address *address);

#endif
