// SPDX-License-Identifier: GPL-2.0
/* See figures.h. */
#include "figures.h"
#include "whose.h"

/* Of each shard: those that hold most, beside those whose datagrams failed most. */
#define LARGEST (TARN_REASSEMBLY_SOURCES / MEMORY_SHARDS - MEMORY_WATCHED)

static void add_counts(struct tarn_reassembly_counts *sum, const struct tarn_reassembly_counts *counts)
{
	const u64 *from = (const u64 *)counts;
	u64 *to = (u64 *)sum;
	u32 i;

	for (i = 0; i < sizeof(*sum) / sizeof(*to); i++)
		to[i] += from[i];
}

void figures_read(struct reassembly *here, struct tarn_reassembly_figures *figures, struct tarn_reassembly_counts counts[2])
{
	u32 i;

	memset(counts, 0, 2 * sizeof(*counts));
	memory_note_most(&here->memory);
	*figures = (struct tarn_reassembly_figures){
		.memory = atomic_long_read(&here->memory.held),
		.memory_max = READ_ONCE(here->memory.most),
		.strangers = atomic_long_read(&here->memory.strangers),
		.whose = { whose_now(here, false), whose_now(here, true) },
	};
	for (i = 0; i < MEMORY_SHARDS; i++) {
		struct shard *shard = &here->shards[i];

		spin_lock_bh(&shard->lock);
		figures->datagrams += shard->memory.datagrams;
		figures->sources += shard->memory.source_count;
		add_counts(&counts[0], &shard->counts[0]);
		add_counts(&counts[1], &shard->counts[1]);
		spin_unlock_bh(&shard->lock);
	}
}

static void describe(struct tarn_reassembly_source *to, const struct memory_address *address)
{
	to->family = address->family;
	if (is_second(address)) {
		memcpy(to->address, &address->address, sizeof(address->address));
	} else {
		u32 ipv4 = address->address;

		memcpy(to->address, &ipv4, sizeof(ipv4));
	}
}

static u64 failures_of(const struct memory_shard *shard, const struct memory_address *address)
{
	u32 i;

	for (i = 0; i < MEMORY_WATCHED; i++)
		if (shard->watched[i].address.address == address->address && shard->watched[i].address.family == address->family)
			return shard->watched[i].failed;
	return 0;
}

/* Keeps the largest, by replacing the smallest that is there. */
static u32 add_largest(const struct memory_source **largest, u32 count, const struct memory_source *source)
{
	u32 least = 0, i;

	if (count < LARGEST) {
		largest[count] = source;
		return count + 1;
	}
	for (i = 1; i < count; i++)
		if (largest[i]->bytes < largest[least]->bytes)
			least = i;
	if (source->bytes > largest[least]->bytes)
		largest[least] = source;
	return count;
}

static void fill(struct tarn_reassembly_source *to, const struct memory_shard *shard, const struct memory_source *source, u32 now)
{
	describe(to, &source->address);
	to->memory = source->bytes;
	to->datagrams = source->datagrams;
	to->failed = failures_of(shard, &source->address);
	to->is_known = memory_is_known(source, now);
}

static u32 holding(const struct memory_shard *shard, u32 now, struct tarn_reassembly_source *sources)
{
	const struct memory_source *largest[LARGEST], *source;
	u32 count = 0, i;

	for (i = 0; i < MEMORY_SOURCES; i++)
		for (source = shard->sources[i]; source; source = source->next)
			count = add_largest(largest, count, source);
	for (i = 0; i < count; i++)
		fill(&sources[i], shard, largest[i], now);
	return count;
}

static bool is_among(const struct tarn_reassembly_source *sources, u32 count, const struct tarn_reassembly_source *one)
{
	u32 i;

	for (i = 0; i < count; i++)
		if (sources[i].family == one->family && !memcmp(sources[i].address, one->address, sizeof(one->address)))
			return true;
	return false;
}

static const struct memory_source *source_at(const struct memory_shard *shard, const struct memory_address *address)
{
	const struct memory_source *source;
	u32 i;

	for (i = 0; i < MEMORY_SOURCES; i++)
		for (source = shard->sources[i]; source; source = source->next)
			if (source->address.address == address->address && source->address.family == address->family)
				return source;
	return NULL;
}

static u32 failing(const struct memory_shard *shard, u32 now, struct tarn_reassembly_source *sources, u32 count)
{
	u32 i;

	for (i = 0; i < MEMORY_WATCHED; i++) {
		struct tarn_reassembly_source one = { .failed = shard->watched[i].failed };
		const struct memory_source *source;

		if (!one.failed)
			continue;
		describe(&one, &shard->watched[i].address);
		if (is_among(sources, count, &one))
			continue;
		source = source_at(shard, &shard->watched[i].address);
		if (source)
			fill(&one, shard, source, now);
		sources[count++] = one;
	}
	return count;
}

u32 figures_sources(struct reassembly *here, struct tarn_reassembly_source *sources)
{
	u32 now = ktime_get_seconds(), count = 0, i;

	for (i = 0; i < MEMORY_SHARDS; i++) {
		struct shard *shard = &here->shards[i];
		u32 found;

		spin_lock_bh(&shard->lock);
		found = holding(&shard->memory, now, sources + count);
		found = failing(&shard->memory, now, sources + count, found);
		spin_unlock_bh(&shard->lock);
		count += found;
	}
	return count;
}
