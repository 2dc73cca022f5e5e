/* Kernels of a training step for CPUs. Tensors are float32 and contiguous, with the member on axis 0.

   The code is C with the vector types of gcc and clang, so one source serves every processor. One thread processes a row
   or filter from beginning to end, in an order that depends on its size alone: results depend neither on the number of
   threads nor on the other members of the stack. It is not compiled with -ffast-math, because infinite and NaN values
   must be preserved: otherwise a training that diverges would go unnoticed. */

#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif
/* Sums that are held in registers: processors have 32 or 16 vector registers. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define SUMS 16
#else
#define SUMS 8
#endif
#define AHEAD 4 /* vectors whose exponentials are computed at once */
#define CHUNK 512 /* samples that are processed at once, so that they stay in the L1 cache */
#define MAX_TAPS 1024 /* maximum length of a filter */

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec value) { *(vec *)to = value; }
INLINE vec all(float value) { return value - (vec){0}; }
INLINE vec choose(ivec mask, vec yes, vec no) { return (vec)((mask & (ivec)yes) | (~mask & (ivec)no)); }

INLINE vec load_part(const float *from, long count) {
    float buffer[LANES] = {0};
    memcpy(buffer, from, 4 * count);
    return load(buffer);
}

INLINE void store_part(float *to, vec value, long count) {
    float buffer[LANES];
    store(buffer, value);
    memcpy(to, buffer, 4 * count);
}

INLINE double sum_lanes(vec value) {
    double total = 0.0;
    for (int i = 0; i < LANES; i++) total += value[i];
    return total;
}

/* ---- threads ------------------------------------------------------------------------------------------------------

   Threads take items one by one. They are torch's own threads (`parallel` is GOMP_parallel of torch's library), because
   a second pool would compete with them for the cores. If `parallel` is NULL, threads are created for the call. */

typedef void (*Parallel)(void (*)(void *), void *, unsigned, unsigned);
typedef struct Work {
    void (*item)(const void *task, long number);
    const void *task;
    long items, next;
} Work;

static void work_on(void *shared) {
    Work *work = shared;
    for (;;) {
        long number = __atomic_fetch_add(&work->next, 1, __ATOMIC_RELAXED);
        if (number >= work->items) return;
        work->item(work->task, number);
    }
}

static void *work_in_thread(void *shared) {
    work_on(shared);
    return NULL;
}

static void spread(Parallel parallel, long threads, long items, void (*item)(const void *, long), const void *task) {
    Work work = {item, task, items, 0};
    if (threads > items) threads = items;
    if (threads <= 1) {
        work_on(&work);
    } else if (parallel) {
        parallel(work_on, &work, (unsigned)threads, 0);
    } else {
        pthread_t others[64];
        long made = 0;
        while (made < threads - 1 && made < 64 && !pthread_create(&others[made], NULL, work_in_thread, &work)) made++;
        work_on(&work);
        for (long i = 0; i < made; i++) pthread_join(others[i], NULL);
    }
}

/* ---- normalization, ELU, pooling, dropout ------------------------------------------------------------------------- */

/* Return e^x for x ≤ 0 with an error of about one unit in the last place, e^-86 for x < -86 and NaN for NaN. */
INLINE vec exp_vec(vec x) {
    const vec shift = all(12582912.0f); /* 1.5 · 2^23: the last bits of a sum with it are an integer */
    x = choose(x < -86.0f, all(-86.0f), x);
    vec marked = x * 1.44269504f + shift;
    vec power = marked - shift;
    vec r = x - power * 0.693359375f;
    r = r - power * -2.12194440e-4f;
    vec p = 0.0013815060f * r + 0.0083687147f;
    p = p * r + 0.0416683815f;
    p = p * r + 0.1666652113f;
    p = p * r + 0.4999999404f;
    p = p * (r * r) + r + 1.0f;
    return p * (vec)(((ivec)marked + 127) << 23);
}

/* Return ln x for normal x > 0 with an error of about one unit in the last place; NaN and infinity are preserved. */
INLINE vec log_vec(vec x) {
    const ivec bits = (ivec)x - 0x3f3504f3; /* bits of √½, so that mantissas are close to 1 */
    const ivec power = bits >> 23;
    const vec r = (vec)((bits & 0x7fffff) + 0x3f3504f3) - 1.0f, e = __builtin_convertvector(power, vec);
    vec p = 7.0376836292e-2f * r - 1.1514610310e-1f;
    p = p * r + 1.1676998740e-1f;
    p = p * r - 1.2420140846e-1f;
    p = p * r + 1.4249322787e-1f;
    p = p * r - 1.6668057665e-1f;
    p = p * r + 2.0000714765e-1f;
    p = p * r - 2.4999993993e-1f;
    p = p * r + 3.3333331174e-1f;
    p = p * (r * r * r) + e * -2.12194440e-4f - 0.5f * (r * r);
    return choose(x - x == 0.0f, r + p + e * 0.693359375f, x);
}

/* Return the derivative of ELU at h, which is ELU(h) + 1 for h ≤ 0. */
INLINE vec elu_slope(vec h) { return exp_vec(choose(h > 0.0f, all(0.0f), h)); }

INLINE vec elu(vec h) { return choose(h > 0.0f, h, all(0.0f)) + (elu_slope(h) - 1.0f); }

typedef struct {
    const float *v, *gamma, *beta;                       /* (P, F, B·T), (P, F), (P, F) */
    const int16_t *draws;                                /* (G, F·B·T') */
    const int64_t *group;                                /* (P,) */
    const int32_t *threshold;                            /* (P,) */
    const float *keep_scale;                             /* (P,) */
    float *out, *squares, *mean, *variance;              /* (P, F, B·T') twice, squares may be NULL; (P, F) */
    const float *grad, *grad_squares;                    /* of out and squares */
    float *grad_v, *grad_gamma, *grad_beta;
    long features, batch, times, pool;
    float eps;
} NormPool;

/* Windows of a row, of which the first `used` samples are pooled. If all samples are used, the row is one window. */
typedef struct {
    long windows, length, used, units;
} Shape;

INLINE Shape shape_of(const NormPool *task) {
    long steps = task->times / task->pool;
    if (steps * task->pool == task->times) {
        long n = task->batch * task->times;
        return (Shape){1, n, n, task->batch * steps};
    }
    return (Shape){task->batch, task->times, steps * task->pool, steps};
}

/* Return the sum of n samples, in float within a chunk and in double across chunks. */
static double sum_of(const float *v, long n) {
    double total = 0.0;
    for (long start = 0; start < n; start += CHUNK) {
        long end = start + CHUNK < n ? start + CHUNK : n, i = start;
        vec a = {0}, b = {0}, c = {0}, d = {0};
        for (; i + 4 * LANES <= end; i += 4 * LANES) {
            a += load(v + i);
            b += load(v + i + LANES);
            c += load(v + i + 2 * LANES);
            d += load(v + i + 3 * LANES);
        }
        for (; i + LANES <= end; i += LANES) a += load(v + i);
        if (i < end) b += load_part(v + i, end - i);
        total += sum_lanes((a + b) + (c + d));
    }
    return total;
}

static double squares_about(const float *v, long n, float mean) {
    double total = 0.0;
    for (long start = 0; start < n; start += CHUNK) {
        long end = start + CHUNK < n ? start + CHUNK : n, i = start;
        vec a = {0}, b = {0}, c = {0}, d = {0};
        for (; i + 4 * LANES <= end; i += 4 * LANES) {
            vec p = load(v + i) - mean, q = load(v + i + LANES) - mean;
            vec r = load(v + i + 2 * LANES) - mean, s = load(v + i + 3 * LANES) - mean;
            a += p * p;
            b += q * q;
            c += r * r;
            d += s * s;
        }
        total += sum_lanes((a + b) + (c + d));
        for (; i < end; i++) total += ((double)v[i] - mean) * ((double)v[i] - mean);
    }
    return total;
}

INLINE void pool_chunk(
    const float *values, const float *v, long units, int pool, const int16_t *draw, int least, float gain, float *out,
    float *squares
) {
    for (long u = 0; u < units; u++) {
        float total = values[u * pool];
        for (int i = 1; i < pool; i++) total += values[u * pool + i];
        out[u] = draw[u] >= least ? total * gain : 0.0f;
    }
    if (!squares) return;
    for (long u = 0; u < units; u++) {
        float total = v[u * pool] * v[u * pool];
        for (int i = 1; i < pool; i++) total += v[u * pool + i] * v[u * pool + i];
        squares[u] = total / pool;
    }
}

INLINE void forward_row(const NormPool *task, long row, int pool) {
    const Shape shape = shape_of(task);
    const long n = task->batch * task->times, member = row / task->features, feature = row % task->features;
    const float *v = task->v + row * n;
    const float mean = (float)(sum_of(v, n) / n), variance = (float)(squares_about(v, n, mean) / n);
    task->mean[row] = mean;
    task->variance[row] = variance;

    const float scale = task->gamma[row] / sqrtf(variance + task->eps), shift = task->beta[row];
    const long units = shape.windows * shape.units, whole = CHUNK / pool * pool;
    const int16_t *draw = task->draws + (task->group[member] * task->features + feature) * units;
    const int least = task->threshold[member];
    const float gain = task->keep_scale[member] / pool;
    float *out = task->out + row * units, *squares = task->squares ? task->squares + row * units : NULL;
    float values[CHUNK + LANES];
    for (long window = 0; window < shape.windows; window++, v += shape.length) {
        for (long start = 0; start < shape.used; start += whole) {
            const long count = shape.used - start < whole ? shape.used - start : whole;
            long i = 0;
            for (; i + AHEAD * LANES <= count; i += AHEAD * LANES) {
                vec h[AHEAD];
                for (int j = 0; j < AHEAD; j++) h[j] = (load(v + start + i + j * LANES) - mean) * scale + shift;
                for (int j = 0; j < AHEAD; j++) store(values + i + j * LANES, elu(h[j]));
            }
            for (; i + LANES <= count; i += LANES) store(values + i, elu((load(v + start + i) - mean) * scale + shift));
            if (i < count) store(values + i, elu((load_part(v + start + i, count - i) - mean) * scale + shift));
            pool_chunk(values, v + start, count / pool, pool, draw, least, gain, out, squares);
            draw += count / pool;
            out += count / pool;
            if (squares) squares += count / pool;
        }
    }
}

static void forward_item(const void *argument, long row) {
    const NormPool *task = argument;
    if (task->pool == 4)
        forward_row(task, row, 4);
    else if (task->pool == 8)
        forward_row(task, row, 8);
    else
        forward_row(task, row, (int)task->pool);
}

/* Distribute the gradient of pooled units to their samples. */
INLINE void unpool(const float *grad, const int16_t *draw, long units, int pool, int least, float gain, float *slope) {
    for (long u = 0; u < units; u++) {
        float own = draw[u] >= least ? grad[u] * gain : 0.0f;
        for (int i = 0; i < pool; i++) slope[u * pool + i] = own;
    }
}

INLINE void backward_row(const NormPool *task, long row, int pool) {
    const Shape shape = shape_of(task);
    const long n = task->batch * task->times, member = row / task->features, feature = row % task->features;
    const float mean = task->mean[row], inverse = 1.0f / sqrtf(task->variance[row] + task->eps);
    const float scale = task->gamma[row] * inverse, shift = task->beta[row];
    const long units = shape.windows * shape.units, whole = CHUNK / pool * pool;
    const int16_t *draw = task->draws + (task->group[member] * task->features + feature) * units;
    const int least = task->threshold[member];
    const float gain = task->keep_scale[member] / pool, twice = 2.0f / pool;
    const float *v = task->v + row * n, *grad = task->grad + row * units;
    float *grad_v = task->grad_v + row * n;
    float unpooled[CHUNK + LANES];
    double total = 0.0, along = 0.0;

    /* First pass: the gradient of the normalized signal and its sums. */
    for (long window = 0; window < shape.windows; window++, v += shape.length, grad_v += shape.length) {
        for (long start = 0; start < shape.used; start += whole) {
            const long count = shape.used - start < whole ? shape.used - start : whole;
            unpool(grad, draw, count / pool, pool, least, gain, unpooled);
            grad += count / pool;
            draw += count / pool;
            vec sum = {0}, sum_along = {0};
            long i = 0;
            for (; i + AHEAD * LANES <= count; i += AHEAD * LANES) {
                vec centered[AHEAD], g[AHEAD];
                for (int j = 0; j < AHEAD; j++) centered[j] = load(v + start + i + j * LANES) - mean;
                for (int j = 0; j < AHEAD; j++)
                    g[j] = elu_slope(centered[j] * scale + shift) * load(unpooled + i + j * LANES);
                for (int j = 0; j < AHEAD; j++) {
                    sum += g[j];
                    sum_along += g[j] * centered[j];
                    store(grad_v + start + i + j * LANES, g[j]);
                }
            }
            for (; i + LANES <= count; i += LANES) {
                vec centered = load(v + start + i) - mean;
                vec g = elu_slope(centered * scale + shift) * load(unpooled + i);
                sum += g;
                sum_along += g * centered;
                store(grad_v + start + i, g);
            }
            if (i < count) {
                vec centered = load_part(v + start + i, count - i) - mean;
                vec g = elu_slope(centered * scale + shift) * load_part(unpooled + i, count - i);
                sum += g;
                sum_along += g * centered;
                store_part(grad_v + start + i, g, count - i);
            }
            total += sum_lanes(sum);
            along += sum_lanes(sum_along);
        }
        for (long i = shape.used; i < shape.length; i++) grad_v[i] = 0.0f;
    }
    task->grad_beta[row] = (float)total;
    task->grad_gamma[row] = (float)(along * inverse);

    /* Second pass: the gradient of the signal, in place. */
    const float level = (float)(scale * total / n), pull = (float)(scale * inverse * inverse * along / n);
    v = task->v + row * n;
    grad_v = task->grad_v + row * n;
    for (long i = 0; i < n; i++) grad_v[i] = scale * grad_v[i] - level - pull * (v[i] - mean);
    if (!task->grad_squares) return;
    const float *slope = task->grad_squares + row * units;
    for (long window = 0; window < shape.windows; window++, v += shape.length, grad_v += shape.length)
        for (long u = 0; u < shape.units; u++, slope++)
            for (int i = 0; i < pool; i++) grad_v[u * pool + i] += twice * v[u * pool + i] * *slope;
}

static void backward_item(const void *argument, long row) {
    const NormPool *task = argument;
    if (task->pool == 4)
        backward_row(task, row, 4);
    else if (task->pool == 8)
        backward_row(task, row, 8);
    else
        backward_row(task, row, (int)task->pool);
}

void norm_pool_forward(Parallel parallel, long threads, long members, const NormPool *task) {
    spread(parallel, threads, members * task->features, forward_item, task);
}

void norm_pool_backward(Parallel parallel, long threads, long members, const NormPool *task) {
    spread(parallel, threads, members * task->features, backward_item, task);
}

/* ---- filters along time -------------------------------------------------------------------------------------------- */

typedef struct {
    const float *x, *w, *grad; /* (N, R, T), (N, K), (N, R, T) */
    float *out;                /* (N, R, T), or (N, K) of the filters' gradient */
    long rows, times, taps, left, flipped;
} Filter;

#define SHARING 4 /* factors that use each loaded vector of a signal */
#define GROUPS_PER_ITEM 4  /* groups of LANES rows per item */

/* LANES rows are interleaved, with a sample of each in a vector, and filtered at once. All loads are whole vectors,
   no factor is 0 as in a Toeplitz matrix, and consecutive taps share loaded vectors. Interleaving takes about a tenth of
   the time of filtering. */

#if defined(__clang__)
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
#endif
#if LANES == 16
#define STAGES 4
#define FIRST_HALVES 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define LAST_HALVES 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define STAGES 3
#define FIRST_HALVES 0, 8, 1, 9, 2, 10, 3, 11
#define LAST_HALVES 4, 12, 5, 13, 6, 14, 7, 15
#else
#define STAGES 2
#define FIRST_HALVES 0, 4, 1, 5
#define LAST_HALVES 2, 6, 3, 7
#endif

/* Transpose a square of LANES × LANES numbers by repeatedly merging rows that are half the square apart. */
INLINE void transpose(vec square[LANES]) {
#pragma GCC unroll 4
    for (int stage = 0; stage < STAGES; stage++) {
        vec merged[LANES];
#pragma GCC unroll 8
        for (int i = 0; i < LANES / 2; i++) {
            merged[2 * i] = SHUFFLED(square[i], square[i + LANES / 2], FIRST_HALVES);
            merged[2 * i + 1] = SHUFFLED(square[i], square[i + LANES / 2], LAST_HALVES);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) square[i] = merged[i];
    }
}

/* Interleave the first LANES of `count` rows of `times` samples: `times` vectors with a sample of each row, 0 for missing
   rows. */
static void interleave(const float *rows, long count, long times, float *turned) {
    for (long start = 0; start < times; start += LANES) {
        const long t = start + LANES <= times || times < LANES ? start : times - LANES; /* the last one ends with it */
        vec square[LANES];
        for (int r = 0; r < LANES; r++) {
            if (r >= count)
                square[r] = all(0.0f);
            else
                square[r] = times < LANES ? load_part(rows + r * times, times) : load(rows + r * times + t);
        }
        transpose(square);
        for (int i = 0; i < LANES && i < times; i++) store(turned + (t + i) * LANES, square[i]);
    }
}

/* Inverse of interleave. */
static void deinterleave(const float *turned, long count, long times, float *rows) {
    for (long start = 0; start < times; start += LANES) {
        const long t = start + LANES <= times || times < LANES ? start : times - LANES;
        vec square[LANES];
        for (int i = 0; i < LANES; i++) square[i] = load(turned + (t + (i < times ? i : 0)) * LANES);
        transpose(square);
        for (int r = 0; r < LANES && r < count; r++) {
            if (times < LANES)
                store_part(rows + r * times, square[r], times);
            else
                store(rows + r * times + t, square[r]);
        }
    }
}

/* Compute `wide` sums; sum s is that of factor[k] · x[s + k] over `count` k. Factors are scalars, whose sums are stored,
   or vectors, whose sums are added to total. */
INLINE void sum_shifted(const float *x, const float *factor, long count, int are_vectors, int wide, float *total) {
    vec sum[SUMS];
#pragma GCC unroll 16
    for (int s = 0; s < wide; s++) sum[s] = all(0.0f);
    long k = 0;
    for (; k + SHARING <= count; k += SHARING) {
        vec own[SHARING];
#pragma GCC unroll 4
        for (int m = 0; m < SHARING; m++) own[m] = are_vectors ? load(factor + (k + m) * LANES) : all(factor[k + m]);
#pragma GCC unroll 20
        for (int j = 0; j < wide + SHARING - 1; j++) {
            const vec samples = load(x + (k + j) * LANES);
#pragma GCC unroll 4
            for (int m = 0; m < SHARING; m++)
                if (m <= j && j - m < wide) sum[j - m] += own[m] * samples;
            __asm__ volatile("" ::: "memory"); /* keeps gcc from loading more samples than registers hold */
        }
    }
    for (; k < count; k++) {
        const vec own = are_vectors ? load(factor + k * LANES) : all(factor[k]);
#pragma GCC unroll 16
        for (int s = 0; s < wide; s++) sum[s] += own * load(x + (k + s) * LANES);
    }
#pragma GCC unroll 16
    for (int s = 0; s < wide; s++) {
        if (are_vectors) sum[s] += load(total + s * LANES);
        store(total + s * LANES, sum[s]);
    }
}

/* Return how many of `left` sums are computed next: as many as registers hold, otherwise a power of two. */
INLINE int next_wide(long left) { return left >= SUMS ? SUMS : left >= 8 ? 8 : left >= 4 ? 4 : left >= 2 ? 2 : 1; }

INLINE void sum_next(const float *x, const float *factor, long count, int are_vectors, int wide, float *total) {
    if (wide == SUMS)
        sum_shifted(x, factor, count, are_vectors, SUMS, total);
    else if (wide == 8)
        sum_shifted(x, factor, count, are_vectors, 8, total);
    else if (wide == 4)
        sum_shifted(x, factor, count, are_vectors, 4, total);
    else if (wide == 2)
        sum_shifted(x, factor, count, are_vectors, 2, total);
    else
        sum_shifted(x, factor, count, are_vectors, 1, total);
}

/* Filter `padded`, `times` vectors with taps - 1 vectors of zeros around them, `left` of them in front. Taps that meet no
   sample for any of the sums are skipped. */
static void filter_interleaved(const float *padded, const float *w, long times, long taps, long left, float *out) {
    for (long t = 0, wide; t < times; t += wide) {
        wide = next_wide(times - t);
        const long begin = left - t - wide + 1 > 0 ? left - t - wide + 1 : 0;
        const long end = times + left - t < taps ? times + left - t : taps;
        sum_next(padded + (t + begin) * LANES, w + begin, end - begin, 0, (int)wide, out + t * LANES);
    }
}

/* Add to `sums`, for every tap and LANES rows, the sum over samples of slope · the sample under the tap. */
static void gradient_interleaved(
    const float *padded, const float *slopes, long times, long taps, long left, float *sums
) {
    for (long k = 0, wide; k < taps; k += wide) {
        wide = next_wide(taps - k);
        const long begin = left - k - wide + 1 > 0 ? left - k - wide + 1 : 0;
        const long end = times + left - k < times ? times + left - k : times;
        if (begin >= end) continue; /* these taps meet no sample */
        sum_next(padded + (k + begin) * LANES, slopes + begin * LANES, end - begin, 1, (int)wide, sums + k * LANES);
    }
}

static void filter_item(const void *argument, long number) {
    const Filter *task = argument;
    const long each = GROUPS_PER_ITEM * LANES, blocks = (task->rows + each - 1) / each;
    const long n = number / blocks, start = number % blocks * each, taps = task->taps, times = task->times;
    const long stop = start + each < task->rows ? start + each : task->rows;
    const float *x = task->x + n * task->rows * times;
    float *out = task->out + n * task->rows * times, w[MAX_TAPS];
    float *padded = calloc((2 * times + taps - 1) * LANES, 4), *filtered = padded + (times + taps - 1) * LANES;
    if (!padded) { /* out of memory: return NaN */
        for (long i = start * times; i < stop * times; i++) out[i] = NAN;
        return;
    }
    for (long k = 0; k < taps; k++) w[k] = task->w[n * taps + (task->flipped ? taps - 1 - k : k)];
    for (long r = start; r < stop; r += LANES) {
        interleave(x + r * times, stop - r, times, padded + task->left * LANES);
        filter_interleaved(padded, w, times, taps, task->left, filtered);
        deinterleave(filtered, stop - r, times, out + r * times);
    }
    free(padded);
}

void filter_times(Parallel parallel, long threads, long count, const Filter *task) {
    const long each = GROUPS_PER_ITEM * LANES;
    spread(parallel, threads, count * ((task->rows + each - 1) / each), filter_item, task);
}

static void gradient_item(const void *argument, long n) {
    const Filter *task = argument;
    const long times = task->times, taps = task->taps, rows = task->rows;
    const float *x = task->x + n * rows * times, *grad = task->grad + n * rows * times;
    float *out = task->out + n * taps;
    float *padded = calloc((2 * times + 2 * taps - 1) * LANES, 4);
    if (!padded) { /* out of memory: return NaN */
        for (long k = 0; k < taps; k++) out[k] = NAN;
        return;
    }
    float *slopes = padded + (times + taps - 1) * LANES, *sums = slopes + times * LANES;
    for (long r = 0; r < rows; r += LANES) {
        interleave(x + r * times, rows - r, times, padded + task->left * LANES);
        interleave(grad + r * times, rows - r, times, slopes);
        gradient_interleaved(padded, slopes, times, taps, task->left, sums);
    }
    for (long k = 0; k < taps; k++) out[k] = (float)sum_lanes(load(sums + k * LANES));
    free(padded);
}

void filter_gradient(Parallel parallel, long threads, long count, const Filter *task) {
    spread(parallel, threads, count, gradient_item, task);
}

/* ---- blocks of a network -------------------------------------------------------------------------------------------

   A first block mixes channels and then filters along time; a second block filters first. Both then apply normalization,
   ELU, pooling and dropout, or compute the power of segments. Signals stay in the cache from one step to the next. Only
   signals before normalization are written to memory; the backward pass computes the other signals again.

   LANES windows are interleaved, so a signal is (V, T, LANES) with V groups of windows. If the last group has fewer
   windows, its other lanes are 0 before the normalization and then the mean of the signal, so that they do not
   contribute to the variance. */

typedef struct {
    const float *x;                            /* (G, V, C, T, LANES) from lay_out; in a second block (P, C, B, T) */
    const int64_t *group;                      /* (P,) index of the windows of a member */
    const float *spatial, *constant;           /* (P, F, C); (P, F, B) added to mixed channels, may be NULL */
    const float *w;                            /* (P, F / depth, K); in a second block (P, C, K) */
    const float *gamma, *beta;                 /* (P, F) */
    const int16_t *draws;                      /* (G, F·B·T'); other fields of dropout as in NormPool */
    const int32_t *threshold;
    const float *keep_scale;
    float *v;                                  /* (P, F, V, T, LANES) signals before normalization */
    float *out, *power;                        /* (P, F, B, T'), (P, F, B, S): either may be NULL */
    float *level, *square;                     /* (P, F, V, S, LANES), if there is power but no units */
    float *mean, *variance;                    /* (P, F) */
    const float *grad, *grad_power;            /* of out and power */
    float *grad_spatial, *grad_constant, *grad_w, *grad_gamma, *grad_beta;
    float *grad_x; /* only in a second block */
    long channels, features, depth, batch, times, taps, left, pool, segments, length;
    long rows;       /* signals of a member per item */
    long as_latents; /* whether units are (P, B, F, T') */
    float eps;
} Block;

/* JOINT signals are mixed at once, MIXING vectors of each, so that they share the loaded vectors of a channel. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define JOINT 4
#else
#define JOINT 2
#endif
#define MIXING 4
#define WHOLE(rows) (((rows) + JOINT - 1) / JOINT * JOINT)
#define GROUPS(batch) (((batch) + LANES - 1) / LANES)

INLINE long items_of(const Block *task) { return (task->features + task->rows - 1) / task->rows; }
INLINE long lanes_of(const Block *task, long v) {
    return task->batch - v * LANES < LANES ? task->batch - v * LANES : LANES;
}

/* Set the lanes from `first` on of `count` vectors. */
static void fill_lanes(float *signal, long count, long first, float value) {
    for (long t = 0; t < count; t++)
        for (long i = first; i < LANES; i++) signal[t * LANES + i] = value;
}

/* Compute `wide` ≤ MIXING samples of JOINT mixtures of channels, which are `apart` from each other. */
INLINE void mix_some(
    const float *x, long apart, long channels, const float **weight, const vec constant[JOINT], long t, int wide,
    float **out
) {
    vec total[JOINT][MIXING];
    for (int i = 0; i < JOINT; i++)
        for (int j = 0; j < wide; j++) total[i][j] = constant[i];
    for (long c = 0; c < channels; c++) {
        vec samples[MIXING];
        for (int j = 0; j < wide; j++) samples[j] = load(x + c * apart + (t + j) * LANES);
        for (int i = 0; i < JOINT; i++)
            for (int j = 0; j < wide; j++) total[i][j] += samples[j] * weight[i][c];
    }
    for (int i = 0; i < JOINT; i++)
        for (int j = 0; j < wide; j++) store(out[i] + (t + j) * LANES, total[i][j]);
}

INLINE void mix_all(
    const float *x, long apart, long channels, long times, const float **weight, const vec constant[JOINT],
    float **out
) {
    long t = 0;
    for (; t + MIXING <= times; t += MIXING) mix_some(x, apart, channels, weight, constant, t, MIXING, out);
    for (; t < times; t++) mix_some(x, apart, channels, weight, constant, t, 1, out);
}

/* Mix JOINT signals of a member from r on for one group of windows; missing signals repeat signal r. */
static void mix_joint(const Block *task, long member, long r, long v, float **out) {
    const long channels = task->channels, times = task->times, apart = times * LANES;
    const float *x = task->x + (task->group[member] * GROUPS(task->batch) + v) * channels * apart, *weight[JOINT];
    vec constant[JOINT];
    for (int i = 0; i < JOINT; i++) {
        const long row = member * task->features + (r + i < task->features ? r + i : r);
        weight[i] = task->spatial + row * channels;
        constant[i] = all(0.0f);
        if (task->constant) constant[i] = load_part(task->constant + row * task->batch + v * LANES, lanes_of(task, v));
    }
    mix_all(x, apart, channels, times, weight, constant, out);
}

/* Compute mixtures (rows, T, LANES) of channels (channels, T, LANES) with weights (rows, channels). Mixtures are `apart`
   from each other, with memory for a multiple of JOINT. */
static void mix_interleaved(
    const float *x, long channels, long times, const float *weight, long rows, float *out, long apart
) {
    const vec none[JOINT] = {{0}};
    for (long r = 0; r < rows; r += JOINT) {
        const float *own[JOINT];
        float *to[JOINT];
        for (long i = 0; i < JOINT; i++) {
            own[i] = weight + (r + i < rows ? r + i : r) * channels;
            to[i] = out + (r + i) * apart;
        }
        mix_all(x, times * LANES, channels, times, own, none, to);
    }
}

/* Mix and filter the signals start to stop of a member. buffer: zeros for JOINT padded signals. */
static void filter_mixed(const Block *task, long member, long start, long stop, float *buffer) {
    const long times = task->times, taps = task->taps, groups = GROUPS(task->batch), each = (times + taps - 1) * LANES;
    float *mixed[JOINT];
    for (long i = 0; i < JOINT; i++) mixed[i] = buffer + i * each + task->left * LANES;
    for (long v = 0; v < groups; v++)
        for (long r = start; r < stop; r += JOINT) {
            mix_joint(task, member, r, v, mixed);
            for (long i = 0; i < JOINT && r + i < stop; i++) {
                const float *w = task->w + (member * task->features + r + i) / task->depth * taps;
                float *out = task->v + ((member * task->features + r + i) * groups + v) * times * LANES;
                filter_interleaved(buffer + i * each, w, times, taps, task->left, out);
            }
        }
}

INLINE void pool_interleaved(const float *v, long units, int pool, float mean, float scale, float shift, float *out) {
    for (long u = 0; u < units; u++, v += pool * LANES) {
        vec total = elu((load(v) - mean) * scale + shift);
        for (int i = 1; i < pool; i++) total += elu((load(v + i * LANES) - mean) * scale + shift);
        store(out + u * LANES, total);
    }
}

/* Compute means of `length` samples, or of their squares, after subtracting `mean`. */
INLINE void means_interleaved(const float *v, long count, long length, float mean, int squared, float *out) {
    for (long s = 0; s < count; s++) {
        vec total = {0};
        for (long i = 0; i < length; i++, v += LANES) {
            const vec own = load(v) - mean;
            if (squared)
                total += own * own;
            else
                total += own;
        }
        store(out + s * LANES, total / (float)length);
    }
}

/* Position of the units of a signal: `windows` windows of `count` units, `between` from one to the next. Units that are
   contiguous count as one window. */
typedef struct {
    long first, windows, between, count;
} Order;

INLINE Order order_of(const Block *task, long row) {
    const long steps = task->times / task->pool, features = task->features, units = task->batch * steps;
    if (!task->as_latents) return (Order){row * units, 1, 0, units};
    return (Order){row / features * features * units + row % features * steps, task->batch, features * steps, steps};
}

/* Apply normalization, ELU, pooling and dropout to a signal and compute the power of its segments. buffer: for T · LANES
   and B·T' numbers. */
static void finish_units(const Block *task, long row, float *buffer) {
    const long member = row / task->features, times = task->times, groups = GROUPS(task->batch), size = times * LANES;
    const long pool = task->pool, steps = times / pool, units = task->batch * steps, count = task->segments;
    float *v = task->v + row * groups * size, *last = v + (groups - 1) * size, *pooled = buffer + size;
    const long samples = task->batch * times, lanes = lanes_of(task, groups - 1);
    const float mean = (float)(sum_of(v, groups * size) / samples);
    fill_lanes(last, times, lanes, mean);
    const float variance = (float)(squares_about(v, groups * size, mean) / samples);
    task->mean[row] = mean;
    task->variance[row] = variance;
    const float scale = task->gamma[row] / sqrtf(variance + task->eps), shift = task->beta[row];
    for (long g = 0; g < groups; g++, v += size) {
        if (pool == 4)
            pool_interleaved(v, steps, 4, mean, scale, shift, buffer);
        else
            pool_interleaved(v, steps, (int)pool, mean, scale, shift, buffer);
        deinterleave(buffer, lanes_of(task, g), steps, pooled + g * LANES * steps);
        if (!task->power) continue;
        means_interleaved(v, count, task->length, 0.0f, 1, buffer);
        deinterleave(buffer, lanes_of(task, g), count, task->power + (row * task->batch + g * LANES) * count);
    }
    const int16_t *draw = task->draws + (task->group[member] * task->features + row % task->features) * units;
    const int least = task->threshold[member];
    const float gain = task->keep_scale[member] / pool;
    const Order order = order_of(task, row);
    float *out = task->out + order.first;
    for (long b = 0; b < order.windows; b++, out += order.between, pooled += order.count, draw += order.count)
        for (long i = 0; i < order.count; i++) out[i] = draw[i] >= least ? pooled[i] * gain : 0.0f;
}

/* Compute the power of segments of a filtered signal after normalization as the variance in the segment plus the squared
   mean, of which neither is a small difference of large numbers. */
static void finish_power(const Block *task, long row, float *buffer) {
    const long times = task->times, groups = GROUPS(task->batch), size = times * LANES, count = task->segments;
    float *v = task->v + row * groups * size, *level = task->level + row * groups * count * LANES;
    float *square = task->square + row * groups * count * LANES;
    for (long g = 0; g < groups; g++)
        means_interleaved(v + g * size, count, task->length, 0.0f, 0, level + g * count * LANES);
    const float mean = (float)(sum_of(level, groups * count * LANES) / (task->batch * count));
    fill_lanes(v + (groups - 1) * size, times, lanes_of(task, groups - 1), mean);
    for (long g = 0; g < groups; g++)
        means_interleaved(v + g * size, count, task->length, mean, 1, square + g * count * LANES);
    const float variance = (float)(sum_of(square, groups * count * LANES) / (task->batch * count));
    task->mean[row] = mean;
    task->variance[row] = variance;
    const float scale = task->gamma[row] / sqrtf(variance + task->eps), shift = task->beta[row];
    for (long g = 0; g < groups; g++, level += count * LANES, square += count * LANES) {
        for (long i = 0; i < count * LANES; i += LANES) {
            const vec own = load(level + i) - mean, height = own * scale + shift;
            store(level + i, own);
            store(buffer + i, height * height + scale * scale * (load(square + i) - own * own));
        }
        deinterleave(buffer, lanes_of(task, g), count, task->power + (row * task->batch + g * LANES) * count);
    }
}

INLINE void fill_rows_nan(float *out, long from, long to, long each) {
    for (long i = from * each; out && i < to * each; i++) out[i] = NAN;
}

static void block_item(const void *argument, long number) {
    const Block *task = argument;
    const long items = items_of(task), member = number / items, start = number % items * task->rows;
    const long stop = start + task->rows < task->features ? start + task->rows : task->features;
    const long first = member * task->features + start, last = member * task->features + stop, times = task->times;
    const long units = task->out ? task->batch * (times / task->pool) : 0;
    float *buffer = calloc((JOINT * (times + task->taps - 1) + times) * LANES + units, 4);
    if (!buffer) { /* out of memory: return NaN */
        fill_rows_nan(task->out, first, last, units);
        fill_rows_nan(task->power, first, last, task->batch * task->segments);
        fill_rows_nan(task->mean, first, last, 1);
        fill_rows_nan(task->variance, first, last, 1);
        return;
    }
    filter_mixed(task, member, start, stop, buffer);
    float *behind = buffer + JOINT * (times + task->taps - 1) * LANES;
    for (long row = first; row < last; row++) {
        if (task->out)
            finish_units(task, row, behind);
        else
            finish_power(task, row, behind);
    }
    free(buffer);
}

void block_forward(Parallel parallel, long threads, long members, const Block *task) {
    spread(parallel, threads, members * items_of(task), block_item, task);
}

/* Gradient of a filtered signal v: factor · slope + (v - mean) · bend + offset. Factor and slopes are those of units.
   Every segment, and the remainder after the last segment, has its own bend and offset. */
typedef struct {
    float *slope;         /* (V, T, LANES); NULL: none */
    float *bend, *offset; /* (V, S + 1, LANES) */
    float factor, mean;
} Slopes;

#define SUMMED_UNITS 8 /* units whose slopes are summed first, for fewer consecutive roundings */

INLINE void slope_interleaved(
    const float *v, const float *grad, long units, int pool, float mean, float scale, float shift, float *slope, vec *total,
    vec *along
) {
    for (long start = 0; start < units; start += SUMMED_UNITS) {
        const long stop = start + SUMMED_UNITS < units ? start + SUMMED_UNITS : units;
        vec sum = {0}, sum_along = {0};
        for (long u = start; u < stop; u++, v += pool * LANES, slope += pool * LANES) {
            const vec own = load(grad + u * LANES);
            for (int i = 0; i < pool; i++) {
                const vec centered = load(v + i * LANES) - mean, g = elu_slope(centered * scale + shift) * own;
                sum += g;
                sum_along += g * centered;
                store(slope + i * LANES, g);
            }
        }
        *total += sum;
        *along += sum_along;
    }
}

/* Compute the slopes of units and power. buffer: for B·T' and T' · LANES numbers. */
static void slopes_of_units(const Block *task, long row, float *buffer, Slopes *slopes) {
    const long member = row / task->features, times = task->times, groups = GROUPS(task->batch), size = times * LANES;
    const long pool = task->pool, steps = times / pool, units = task->batch * steps, count = task->segments;
    const float *v = task->v + row * groups * size;
    const int16_t *draw = task->draws + (task->group[member] * task->features + row % task->features) * units;
    const int least = task->threshold[member];
    const float gain = task->keep_scale[member] / pool;
    const Order order = order_of(task, row);
    const float *grad = task->grad + order.first;
    for (long b = 0; b < order.windows; b++, grad += order.between, draw += order.count)
        for (long i = 0; i < order.count; i++) buffer[b * order.count + i] = draw[i] >= least ? grad[i] * gain : 0.0f;

    const float mean = task->mean[row], inverse = 1.0f / sqrtf(task->variance[row] + task->eps);
    const float scale = task->gamma[row] * inverse, shift = task->beta[row];
    float *turned = buffer + units, *slope = slopes->slope;
    double total = 0.0, along = 0.0;
    for (long g = 0; g < groups; g++, v += size, slope += size) {
        vec sum = {0}, sum_along = {0};
        interleave(buffer + g * LANES * steps, lanes_of(task, g), steps, turned);
        if (pool == 4)
            slope_interleaved(v, turned, steps, 4, mean, scale, shift, slope, &sum, &sum_along);
        else
            slope_interleaved(v, turned, steps, (int)pool, mean, scale, shift, slope, &sum, &sum_along);
        memset(slope + steps * pool * LANES, 0, 4 * (times - steps * pool) * LANES);
        total += sum_lanes(sum);
        along += sum_lanes(sum_along);
    }
    task->grad_beta[row] = (float)total;
    task->grad_gamma[row] = (float)(along * inverse);

    const double samples = (double)task->batch * times;
    const float level = (float)(scale * total / samples), pull = (float)(scale * inverse * inverse * along / samples);
    slopes->factor = scale;
    slopes->mean = mean;
    for (long g = 0; g < groups; g++) {
        float *bend = slopes->bend + g * (count + 1) * LANES, *offset = slopes->offset + g * (count + 1) * LANES;
        if (count)
            interleave(task->grad_power + (row * task->batch + g * LANES) * count, lanes_of(task, g), count, turned);
        for (long s = 0; s < count; s++) {
            const vec twice = load(turned + s * LANES) * (2.0f / task->length);
            store(bend + s * LANES, twice - pull);
            store(offset + s * LANES, twice * mean - level);
        }
        store(bend + count * LANES, all(-pull));
        store(offset + count * LANES, all(-level));
    }
}

/* Compute the slopes of power (scale · level + shift)² + scale² · (square - level²). buffer: for S · LANES numbers. */
static void slopes_of_power(const Block *task, long row, float *buffer, Slopes *slopes) {
    const long groups = GROUPS(task->batch), count = task->segments, n = task->batch * count;
    const float *level = task->level + row * groups * count * LANES, *square = task->square + row * groups * count * LANES;
    const float inverse = 1.0f / sqrtf(task->variance[row] + task->eps), length = task->length;
    const float scale = task->gamma[row] * inverse, shift = task->beta[row];
    double for_scale = 0.0, for_shift = 0.0;
    for (long g = 0; g < groups; g++) {
        float *bend = slopes->bend + g * (count + 1) * LANES;
        vec by_scale = {0}, by_shift = {0};
        interleave(task->grad_power + (row * task->batch + g * LANES) * count, lanes_of(task, g), count, buffer);
        for (long i = 0; i < count * LANES; i += LANES) {
            const vec own = load(buffer + i), height = load(level + g * count * LANES + i);
            by_scale += own * (scale * load(square + g * count * LANES + i) + shift * height);
            by_shift += own * (scale * height + shift);
            store(bend + i, own);
        }
        for_scale += 2.0 * sum_lanes(by_scale);
        for_shift += 2.0 * sum_lanes(by_shift);
    }
    task->grad_gamma[row] = (float)(for_scale * inverse);
    task->grad_beta[row] = (float)for_shift;
    const float by_variance = (float)(-0.5 * for_scale * scale * inverse * inverse / n);
    const float share = (float)(scale * for_shift / n); /* centering removes the mean of the gradient */
    slopes->mean = task->mean[row];
    for (long g = 0; g < groups; g++) {
        float *bend = slopes->bend + g * (count + 1) * LANES, *offset = slopes->offset + g * (count + 1) * LANES;
        for (long i = 0; i < count * LANES; i += LANES) {
            const vec own = load(bend + i);
            store(offset + i, (own * (2.0f * scale * shift) - share) / length);
            store(bend + i, (own * (scale * scale) + by_variance) * 2.0f / length);
        }
        store(bend + count * LANES, all(0.0f));
        store(offset + count * LANES, all(0.0f));
    }
}

/* Compute the gradient of a filtered signal for one group of windows. */
static void gradient_of_signal(const Block *task, const Slopes *slopes, long row, long g, float *out) {
    const long times = task->times, groups = GROUPS(task->batch), length = task->length, count = task->segments;
    const float *v = task->v + (row * groups + g) * times * LANES, mean = slopes->mean;
    const float *slope = slopes->slope ? slopes->slope + g * times * LANES : NULL;
    for (long s = 0; s <= count; s++) {
        const vec bend = load(slopes->bend + (g * (count + 1) + s) * LANES);
        const vec offset = load(slopes->offset + (g * (count + 1) + s) * LANES);
        for (long t = s * length; t < (s < count ? (s + 1) * length : times); t++) {
            vec own = (load(v + t * LANES) - mean) * bend + offset;
            if (slope) own += slopes->factor * load(slope + t * LANES);
            store(out + t * LANES, own);
        }
    }
    fill_lanes(out, times, lanes_of(task, g), 0.0f);
}

/* Add to `sums` the products of JOINT gradients and `wide` ≤ MIXING channels, summed over one group of windows. */
INLINE void sum_channels(
    const float **grad, const float *x, long apart, long times, int wide, float **sums
) {
    vec total[JOINT][MIXING];
    for (int i = 0; i < JOINT; i++)
        for (int j = 0; j < wide; j++) total[i][j] = all(0.0f);
    for (long t = 0; t < times; t++) {
        vec own[JOINT];
        for (int i = 0; i < JOINT; i++) own[i] = load(grad[i] + t * LANES);
        for (int j = 0; j < wide; j++) {
            const vec samples = load(x + j * apart + t * LANES);
            for (int i = 0; i < JOINT; i++) total[i][j] += own[i] * samples;
        }
    }
    for (int i = 0; i < JOINT; i++)
        for (int j = 0; j < wide; j++) store(sums[i] + j * LANES, load(sums[i] + j * LANES) + total[i][j]);
}

/* Add the products of JOINT gradients and all channels, which are `apart` from each other. */
static void sum_all_channels(
    const float **grad, const float *x, long apart, long channels, long times, float *sums
) {
    for (long c = 0; c < channels; c++) {
        float *to[JOINT];
        for (long i = 0; i < JOINT; i++) to[i] = sums + (i * channels + c) * LANES;
        if (c + MIXING <= channels) {
            sum_channels(grad, x + c * apart, apart, times, MIXING, to);
            c += MIXING - 1;
        } else {
            sum_channels(grad, x + c * apart, apart, times, 1, to);
        }
    }
}

static void block_gradient_item(const void *argument, long number) {
    const Block *task = argument;
    const long items = items_of(task), member = number / items, start = number % items * task->rows;
    const long stop = start + task->rows < task->features ? start + task->rows : task->features, rows = stop - start;
    const long times = task->times, taps = task->taps, channels = task->channels, groups = GROUPS(task->batch);
    const long first = member * task->features + start, filters = rows / task->depth, right = taps - 1 - task->left;
    const long each = (times + taps - 1) * LANES, size = times * LANES, bends = groups * (task->segments + 1) * LANES;
    const long units = task->grad ? task->batch * (times / task->pool) : 0, slopes_size = task->grad ? groups * size : 0;
    const long whole = WHOLE(rows); /* including signals whose results are not used */
    const long zeros = 2 * JOINT * each + JOINT * size + (filters * taps + whole * channels) * LANES;
    float *buffer = malloc(4 * (zeros + whole * (slopes_size + 2 * bends) + units + size + filters * taps));
    Slopes *slopes = calloc(whole, sizeof *slopes);
    if (!buffer || !slopes) { /* out of memory: return NaN */
        fill_rows_nan(task->grad_spatial, first, first + rows, channels);
        fill_rows_nan(task->grad_constant, first, first + rows, task->batch);
        fill_rows_nan(task->grad_w, first / task->depth, first / task->depth + filters, taps);
        fill_rows_nan(task->grad_gamma, first, first + rows, 1);
        fill_rows_nan(task->grad_beta, first, first + rows, 1);
        free(buffer);
        free(slopes);
        return;
    }
    memset(buffer, 0, 4 * zeros); /* padding and sums */
    float *mixed = buffer, *behind = mixed + JOINT * each, *through = behind + JOINT * each, *sums = through + JOINT * size;
    float *channel_sums = sums + filters * taps * LANES, *scratch = buffer + zeros, *backwards = scratch + units + size;
    float *next = backwards + filters * taps;
    for (long i = 0; i < rows; i++, next += slopes_size + 2 * bends) {
        slopes[i] = (Slopes){slopes_size ? next : NULL, next + slopes_size, next + slopes_size + bends, 0.0f, 0.0f};
        if (task->grad)
            slopes_of_units(task, first + i, scratch, &slopes[i]);
        else
            slopes_of_power(task, first + i, scratch, &slopes[i]);
    }
    const float *w = task->w + first / task->depth * taps;
    for (long i = 0; i < filters * taps; i++) backwards[i] = w[i / taps * taps + taps - 1 - i % taps];

    float *inputs[JOINT];
    const float *grads[JOINT];
    for (long i = 0; i < JOINT; i++) {
        inputs[i] = mixed + i * each + task->left * LANES;
        grads[i] = through + i * size;
    }
    for (long g = 0; g < groups; g++) {
        const float *x = task->x + (task->group[member] * groups + g) * channels * size;
        for (long r = 0; r < rows; r += JOINT) {
            mix_joint(task, member, start + r, g, inputs);
            for (long i = 0; i < JOINT && r + i < rows; i++) {
                const long filter = (r + i) / task->depth;
                float *own = behind + i * each + right * LANES, *passed = through + i * size;
                gradient_of_signal(task, &slopes[r + i], first + r + i, g, own);
                gradient_interleaved(mixed + i * each, own, times, taps, task->left, sums + filter * taps * LANES);
                filter_interleaved(behind + i * each, backwards + filter * taps, times, taps, right, passed);
                if (!task->grad_constant) continue;
                vec total = {0};
                for (long t = 0; t < times; t++) total += load(passed + t * LANES);
                store_part(task->grad_constant + (first + r + i) * task->batch + g * LANES, total, lanes_of(task, g));
            }
            sum_all_channels(grads, x, size, channels, times, channel_sums + r * channels * LANES);
        }
    }
    for (long i = 0; i < filters * taps; i++)
        task->grad_w[first / task->depth * taps + i] = (float)sum_lanes(load(sums + i * LANES));
    for (long i = 0; i < rows * channels; i++)
        task->grad_spatial[first * channels + i] = (float)sum_lanes(load(channel_sums + i * LANES));
    free(buffer);
    free(slopes);
}

void block_backward(Parallel parallel, long threads, long members, const Block *task) {
    spread(parallel, threads, members * items_of(task), block_gradient_item, task);
}

/* Pad and filter the signals of a member for one group of windows. */
static void filter_signals(const Block *task, long member, long g, float *padded, float *filtered) {
    const long times = task->times, taps = task->taps, channels = task->channels, each = (times + taps - 1) * LANES;
    for (long c = 0; c < channels; c++) {
        const long row = member * channels + c;
        const float *x = task->x + (row * task->batch + g * LANES) * times;
        interleave(x, lanes_of(task, g), times, padded + c * each + task->left * LANES);
        filter_interleaved(padded + c * each, task->w + row * taps, times, taps, task->left, filtered + c * times * LANES);
    }
}

static void second_item(const void *argument, long member) {
    const Block *task = argument;
    const long times = task->times, channels = task->channels, features = task->features, size = times * LANES;
    const long groups = GROUPS(task->batch), first = member * features, whole = WHOLE(features);
    const long each = (times + task->taps - 1) * LANES, units = task->batch * (times / task->pool);
    float *buffer = calloc(channels * (each + size) + (whole + 1) * size + units, 4);
    if (!buffer) { /* out of memory: return NaN */
        fill_rows_nan(task->out, first, first + features, units);
        fill_rows_nan(task->mean, first, first + features, 1);
        fill_rows_nan(task->variance, first, first + features, 1);
        return;
    }
    float *filtered = buffer + channels * each, *mixed = filtered + channels * size, *behind = mixed + whole * size;
    for (long g = 0; g < groups; g++) {
        filter_signals(task, member, g, buffer, filtered);
        mix_interleaved(filtered, channels, times, task->spatial + first * channels, features, mixed, size);
        for (long r = 0; r < features; r++) memcpy(task->v + ((first + r) * groups + g) * size, mixed + r * size, 4 * size);
    }
    for (long row = first; row < first + features; row++) finish_units(task, row, behind);
    free(buffer);
}

void second_forward(Parallel parallel, long threads, long members, const Block *task) {
    spread(parallel, threads, members, second_item, task);
}

static void second_gradient_item(const void *argument, long member) {
    const Block *task = argument;
    const long times = task->times, taps = task->taps, channels = task->channels, features = task->features;
    const long groups = GROUPS(task->batch), first = member * features, right = taps - 1 - task->left;
    const long each = (times + taps - 1) * LANES, size = times * LANES, slopes_size = groups * (size + 2 * LANES);
    const long units = task->batch * (times / task->pool), whole = WHOLE(features);
    const long inputs = WHOLE(channels);
    const long zeros = (channels + inputs) * each + whole * size + channels * (taps + whole) * LANES;
    const long others = channels * (size + taps + features) + units + size + features * slopes_size;
    float *buffer = malloc(4 * (zeros + others));
    Slopes *slopes = calloc(features, sizeof *slopes);
    if (!buffer || !slopes) { /* out of memory: return NaN */
        fill_rows_nan(task->grad_x, member * channels, (member + 1) * channels, task->batch * times);
        fill_rows_nan(task->grad_spatial, first, first + features, channels);
        fill_rows_nan(task->grad_w, member * channels, (member + 1) * channels, taps);
        fill_rows_nan(task->grad_gamma, first, first + features, 1);
        fill_rows_nan(task->grad_beta, first, first + features, 1);
        free(buffer);
        free(slopes);
        return;
    }
    memset(buffer, 0, 4 * zeros); /* padding, sums, and the gradient of missing signals */
    float *padded = buffer, *behind = padded + channels * each, *grads = behind + inputs * each;
    float *sums = grads + whole * size, *channel_sums = sums + channels * taps * LANES, *filtered = buffer + zeros;
    float *backwards = filtered + channels * size, *turned = backwards + channels * taps;
    float *scratch = turned + channels * features, *next = scratch + units + size;
    for (long r = 0; r < features; r++, next += slopes_size) {
        slopes[r] = (Slopes){next, next + groups * size, next + groups * (size + LANES), 0.0f, 0.0f};
        slopes_of_units(task, first + r, scratch, &slopes[r]);
    }
    const float *w = task->w + member * channels * taps, *weight = task->spatial + first * channels;
    for (long i = 0; i < channels * taps; i++) backwards[i] = w[i / taps * taps + taps - 1 - i % taps];
    for (long i = 0; i < channels * features; i++) turned[i] = weight[i % features * channels + i / features];

    for (long g = 0; g < groups; g++) {
        filter_signals(task, member, g, padded, filtered);
        for (long r = 0; r < features; r++) gradient_of_signal(task, &slopes[r], first + r, g, grads + r * size);
        for (long r = 0; r < features; r += JOINT) {
            const float *own[JOINT];
            for (long i = 0; i < JOINT; i++) own[i] = grads + (r + i) * size;
            sum_all_channels(own, filtered, size, channels, times, channel_sums + r * channels * LANES);
        }
        mix_interleaved(grads, features, times, turned, channels, behind + right * LANES, each);
        for (long c = 0; c < channels; c++) {
            float *own = behind + c * each;
            gradient_interleaved(padded + c * each, own + right * LANES, times, taps, task->left, sums + c * taps * LANES);
            filter_interleaved(own, backwards + c * taps, times, taps, right, filtered);
            float *to = task->grad_x + ((member * channels + c) * task->batch + g * LANES) * times;
            deinterleave(filtered, lanes_of(task, g), times, to);
        }
    }
    for (long i = 0; i < channels * taps; i++)
        task->grad_w[member * channels * taps + i] = (float)sum_lanes(load(sums + i * LANES));
    for (long i = 0; i < features * channels; i++)
        task->grad_spatial[first * channels + i] = (float)sum_lanes(load(channel_sums + i * LANES));
    free(buffer);
    free(slopes);
}

void second_backward(Parallel parallel, long threads, long members, const Block *task) {
    spread(parallel, threads, members, second_gradient_item, task);
}

typedef struct {
    const float *x; /* (G, C, B, T) */
    float *out;     /* (G, V, C, T, LANES) */
    long channels, batch, times;
} Interleave;

static void interleave_item(const void *argument, long n) {
    const Interleave *task = argument;
    const long batch = task->batch, times = task->times, groups = GROUPS(batch);
    const long channels = task->channels, group = n / channels, channel = n % channels;
    for (long g = 0; g < groups; g++) {
        float *out = task->out + ((group * groups + g) * channels + channel) * times * LANES;
        interleave(task->x + (n * batch + g * LANES) * times, batch - g * LANES, times, out);
    }
}

void lay_out(Parallel parallel, long threads, long count, const Interleave *task) {
    spread(parallel, threads, count, interleave_item, task);
}

/* ---- latents of power ----------------------------------------------------------------------------------------------

   Logarithms of power after normalization and dropout, in the order of latents. */

typedef struct {
    const float *power, *gamma, *beta; /* (P, F, B·S), (P, F), (P, F) */
    const int16_t *draws;              /* (G, F·B·S); other fields of dropout as in NormPool */
    const int64_t *group;
    const int32_t *threshold;
    const float *keep_scale;
    float *logs, *out, *mean, *variance; /* (P, F, B·S), (P, B, F, S), (P, F) twice */
    const float *grad;                   /* of out */
    float *grad_power, *grad_gamma, *grad_beta;
    long features, batch, segments;
    float floor, eps;
} Latents;

static void latents_item(const void *argument, long row) {
    const Latents *task = argument;
    const long features = task->features, count = task->segments, n = task->batch * count;
    const long member = row / features, feature = row % features;
    const float *power = task->power + row * n;
    float *logs = task->logs + row * n;
    long i = 0;
    for (; i + LANES <= n; i += LANES) store(logs + i, log_vec(load(power + i) + task->floor));
    if (i < n) store_part(logs + i, log_vec(load_part(power + i, n - i) + task->floor), n - i);
    const float mean = (float)(sum_of(logs, n) / n), variance = (float)(squares_about(logs, n, mean) / n);
    task->mean[row] = mean;
    task->variance[row] = variance;
    const float keep_scale = task->keep_scale[member], scale = task->gamma[row] / sqrtf(variance + task->eps) * keep_scale;
    const float shift = task->beta[row] * keep_scale;
    const int16_t *draw = task->draws + (task->group[member] * features + feature) * n;
    const int least = task->threshold[member];
    float *out = task->out + (member * task->batch * features + feature) * count;
    for (long b = 0; b < task->batch; b++, logs += count, draw += count, out += features * count)
        for (long s = 0; s < count; s++) out[s] = draw[s] >= least ? (logs[s] - mean) * scale + shift : 0.0f;
}

void latents_forward(Parallel parallel, long threads, long members, const Latents *task) {
    spread(parallel, threads, members * task->features, latents_item, task);
}

static void latents_gradient_item(const void *argument, long row) {
    const Latents *task = argument;
    const long features = task->features, count = task->segments, n = task->batch * count;
    const long member = row / features, feature = row % features;
    const float *power = task->power + row * n, *logs = task->logs + row * n;
    const float *grad = task->grad + (member * task->batch * features + feature) * count;
    float *slopes = task->grad_power + row * n;
    const int16_t *draw = task->draws + (task->group[member] * features + feature) * n;
    const int least = task->threshold[member];
    const float keep_scale = task->keep_scale[member], mean = task->mean[row];
    for (long b = 0; b < task->batch; b++, grad += features * count)
        for (long s = 0; s < count; s++)
            slopes[b * count + s] = draw[b * count + s] >= least ? grad[s] * keep_scale : 0.0f;
    double total = sum_of(slopes, n), along = 0.0;
    for (long start = 0; start < n; start += CHUNK) {
        const long end = start + CHUNK < n ? start + CHUNK : n;
        vec sum = {0};
        long i = start;
        for (; i + LANES <= end; i += LANES) sum += load(slopes + i) * (load(logs + i) - mean);
        along += sum_lanes(sum);
        for (; i < end; i++) along += (double)slopes[i] * ((double)logs[i] - mean);
    }
    const float inverse = 1.0f / sqrtf(task->variance[row] + task->eps), scale = task->gamma[row] * inverse;
    task->grad_beta[row] = (float)total;
    task->grad_gamma[row] = (float)(along * inverse);
    const float level = (float)(scale * total / n), pull = (float)(scale * inverse * inverse * along / n);
    for (long i = 0; i < n; i++)
        slopes[i] = (scale * slopes[i] - level - pull * (logs[i] - mean)) / (power[i] + task->floor);
}

void latents_backward(Parallel parallel, long threads, long members, const Latents *task) {
    spread(parallel, threads, members * task->features, latents_gradient_item, task);
}

/* ---- edges of windows ----------------------------------------------------------------------------------------------

   Sums that windows which overlap the padding lack: see edge_sums in model/moments.py. */

typedef struct {
    const float *x; /* (N, R, T) */
    float *out;     /* (N, E): sums on the right and left, products on the right and left, zeros */
    long rows, times, left, right, size;
} Edges;

#define EDGE_ROWS 4    /* rows whose products are added at once */
#define EDGE_PIECE 64  /* rows that are summed in float32 */

/* Compute sums (n,) and products (n, n), from the diagonal on, of the first n samples of all rows, or of the last n
   samples in reverse. buffer: n · (n + 1) doubles and (EDGE_ROWS + n + 1) · wide floats, all 0. */
static void sum_edge(
    const float *x, long rows, long times, long n, int backwards, long wide, double *sums, double *products, float *heads
) {
    const long used = n < times ? n : times;
    float *piece = heads + EDGE_ROWS * wide, *totals = piece + n * wide;
    for (long start = 0; start < rows; start += EDGE_PIECE) {
        const long stop = start + EDGE_PIECE < rows ? start + EDGE_PIECE : rows;
        memset(piece, 0, 4 * (n + 1) * wide);
        for (long r = start; r < stop; r += EDGE_ROWS) {
            for (long k = 0; k < EDGE_ROWS; k++) {
                const float *row = x + (r + k) * times;
                float *head = heads + k * wide;
                if (r + k >= stop)
                    memset(head, 0, 4 * used);
                else if (backwards)
                    for (long i = 0; i < used; i++) head[i] = row[times - 1 - i];
                else
                    memcpy(head, row, 4 * used);
                for (long i = 0; i < used; i++) totals[i] += head[i];
            }
            for (long i = 0; i < used; i++) {
                for (long j = i / LANES * LANES; j < used; j += LANES) {
                    vec total = load(piece + i * wide + j);
                    for (int k = 0; k < EDGE_ROWS; k++) total += heads[k * wide + i] * load(heads + k * wide + j);
                    store(piece + i * wide + j, total);
                }
            }
        }
        for (long i = 0; i < n; i++) {
            sums[i] += totals[i];
            for (long j = i; j < n; j++) products[i * n + j] += piece[i * wide + j];
        }
    }
}

static void edges_item(const void *argument, long number) {
    const Edges *task = argument;
    const long sides[2] = {task->right, task->left}, most = sides[0] > sides[1] ? sides[0] : sides[1];
    const long wide = (most + LANES - 1) / LANES * LANES;
    const float *x = task->x + number * task->rows * task->times;
    float *out = task->out + number * task->size, *triangle = out + sides[0] + sides[1];
    const long bytes = 8 * (most * (most + 1) + 1) + 4 * wide * (most + EDGE_ROWS + 1);
    double *buffer = malloc(bytes);
    for (long i = 0; i < task->size; i++) out[i] = buffer ? 0.0f : NAN; /* out of memory: return NaN */
    for (int side = 0; buffer && side < 2; out += sides[side], side++) {
        const long n = sides[side];
        double *products = buffer + most, total = 0.0;
        memset(buffer, 0, bytes);
        float *heads = (float *)(buffer + most * (most + 1));
        sum_edge(x, task->rows, task->times, n, side, wide, buffer, products, heads);
        for (long i = 0; i < n; i++) out[i] = (float)(total += buffer[i]);
        for (long i = 0; i < n; i++)
            for (long j = i; j < n; j++) { /* cumulative sum along the diagonal */
                if (i) products[i * n + j] += products[(i - 1) * n + j - 1];
                *triangle++ = (float)products[i * n + j];
            }
    }
    free(buffer);
}

void edge_sums(Parallel parallel, long threads, long count, const Edges *task) {
    spread(parallel, threads, count, edges_item, task);
}

/* ---- thin products -------------------------------------------------------------------------------------------------

   Members mix the channels of shared signals: (M, K) × (K, N) with short sides M and K. Members that read the same
   signals follow each other. A piece of the signals is packed before all of them use it, because whole signals are
   powers of two apart and few of them would fit into a cache. */

typedef struct {
    const float *a, *b;   /* (P, M, K), or (P, M, N) in the gradient; (G, K, N) */
    const int64_t *group; /* (P,) index of the signals of a member */
    const int64_t *order; /* (P,) members sorted by their group */
    float *out;           /* (P, M, N), or (P, M, K) in the gradient */
    long members, rows, inner, columns;
    long run; /* members per item */
} Product;

#if defined(__AVX__) && !defined(__AVX512F__)
#define WIDE 2 /* vectors of a row that are mixed at once, for MIXED rows */
#else
#define WIDE 4
#endif
#define MIXED 4
#define PACKED 32768 /* numbers in a piece */
#define PIECE (WIDE * LANES)
#if defined(__AVX__) && !defined(__AVX512F__)
#define ACROSS 3 /* rows of b whose products with ALONG rows of a are summed at once */
#else
#define ACROSS 6
#endif
#define ALONG 4

/* Multiply weights (count, k) by signals (k, times), which are `stride` apart. */
static void mix_rows(
    const float *weight, const float *x, long k, long stride, long times, long count, float *out, long out_stride
) {
    for (long start = 0; start < times; start += WIDE * LANES) {
        /* The last tile ends with the signal. A signal shorter than a tile is padded in its buffer. */
        const long t = start + WIDE * LANES <= times || times < WIDE * LANES ? start : times - WIDE * LANES;
        for (long r = 0; r < count; r += MIXED) {
            const float *row[MIXED], *from = x + t;
            vec total[MIXED][WIDE];
            for (int i = 0; i < MIXED; i++) {
                row[i] = weight + (r + i < count ? r + i : count - 1) * k;
                for (int j = 0; j < WIDE; j++) total[i][j] = all(0.0f);
            }
            for (long c = 0; c < k; c++, from += stride) {
                vec samples[WIDE];
                for (int j = 0; j < WIDE; j++) samples[j] = load(from + j * LANES);
                for (int i = 0; i < MIXED; i++)
                    for (int j = 0; j < WIDE; j++) total[i][j] += samples[j] * row[i][c];
            }
            for (int i = 0; i < MIXED && r + i < count; i++)
                for (int j = 0; j < WIDE; j++) store(out + (r + i) * out_stride + t + j * LANES, total[i][j]);
        }
    }
}

/* Copy columns `first` to `first + count` of `rows` rows to rows of `wide` numbers, padded with zeros. */
static void pack(const float *from, long rows, long columns, long first, long count, float *to, long wide) {
    for (long r = 0; r < rows; r++) {
        memcpy(to + r * wide, from + r * columns + first, 4 * count);
        memset(to + r * wide + count, 0, 4 * (wide - count));
    }
}

/* Set a result to NaN if memory is exhausted. */
static void fill_nan(float *out, long rows, long columns, long count) {
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < count; i++) out[r * columns + i] = NAN;
}

static long piece_of(long inner) {
    const long fitting = PACKED / inner / PIECE * PIECE;
    return fitting > PIECE ? fitting : PIECE;
}

static void product_item(const void *argument, long number) {
    const Product *task = argument;
    const long rows = task->rows, inner = task->inner, columns = task->columns, wide = piece_of(inner);
    const long runs = (task->members + task->run - 1) / task->run, start = number % runs * task->run;
    const long first = number / runs * wide, count = first + wide < columns ? wide : columns - first;
    const long stop = start + task->run < task->members ? start + task->run : task->members;
    float *buffer = calloc(inner * wide + rows * PIECE, 4);
    if (!buffer) {
        for (long i = start; i < stop; i++) fill_nan(task->out + task->order[i] * rows * columns + first, rows, columns, count);
        return;
    }
    float *narrow = buffer + inner * wide;
    for (long i = start, packed = -1; i < stop; i++) {
        const long member = task->order[i], group = task->group[member];
        if (group != packed) pack(task->b + group * inner * columns, inner, columns, first, count, buffer, wide);
        packed = group;
        const float *weight = task->a + member * rows * inner;
        float *out = task->out + member * rows * columns + first;
        if (count >= PIECE) {
            mix_rows(weight, buffer, inner, wide, count, rows, out, columns);
        } else {
            mix_rows(weight, buffer, inner, wide, count, rows, narrow, PIECE);
            for (long r = 0; r < rows; r++) memcpy(out + r * columns, narrow + r * PIECE, 4 * count);
        }
    }
    free(buffer);
}

void product(Parallel parallel, long threads, long count, const Product *task) {
    const long wide = piece_of(task->inner), runs = (count + task->run - 1) / task->run;
    spread(parallel, threads, (task->columns + wide - 1) / wide * runs, product_item, task);
}

#define SUMMED 256 /* columns in a piece */

/* Add products of ALONG rows of a and ACROSS rows of b over the columns of a piece to vectors (rows, inner) in sums. */
INLINE void sum_tile(const float *a, const float *b, float *sums, long along, long across, long inner) {
    vec total[ALONG][ACROSS];
    const float *row[ALONG], *other[ACROSS];
    for (int i = 0; i < ALONG; i++) row[i] = a + (i < along ? i : along - 1) * SUMMED;
    for (int j = 0; j < ACROSS; j++) other[j] = b + (j < across ? j : across - 1) * SUMMED;
    for (int i = 0; i < ALONG; i++)
        for (int j = 0; j < ACROSS; j++) total[i][j] = all(0.0f);
    for (long t = 0; t < SUMMED; t += LANES) {
        vec own[ALONG];
        for (int i = 0; i < ALONG; i++) own[i] = load(row[i] + t);
        for (int j = 0; j < ACROSS; j++) {
            const vec factor = load(other[j] + t);
            for (int i = 0; i < ALONG; i++) total[i][j] += own[i] * factor;
        }
    }
    for (int i = 0; i < ALONG && i < along; i++)
        for (int j = 0; j < ACROSS && j < across; j++) {
            float *to = sums + (i * inner + j) * LANES;
            store(to, load(to) + total[i][j]);
        }
}

static void product_gradient_item(const void *argument, long number) {
    const Product *task = argument;
    const long rows = task->rows, inner = task->inner, columns = task->columns, start = number * task->run;
    const long stop = start + task->run < task->members ? start + task->run : task->members, each = rows * inner * LANES;
    float *buffer = calloc((inner + rows) * SUMMED + (stop - start) * each, 4);
    if (!buffer) {
        for (long i = start; i < stop; i++) fill_nan(task->out + task->order[i] * rows * inner, rows, inner, inner);
        return;
    }
    float *packed = buffer, *slopes = buffer + inner * SUMMED, *sums = slopes + rows * SUMMED;
    for (long first = 0; first < columns; first += SUMMED) {
        const long count = first + SUMMED < columns ? SUMMED : columns - first;
        for (long i = start, laid = -1; i < stop; i++) {
            const long member = task->order[i], group = task->group[member];
            if (group != laid) pack(task->b + group * inner * columns, inner, columns, first, count, packed, SUMMED);
            laid = group;
            pack(task->a + member * rows * columns, rows, columns, first, count, slopes, SUMMED);
            float *own = sums + (i - start) * each;
            for (long k = 0; k < inner; k += ACROSS)
                for (long r = 0; r < rows; r += ALONG)
                    sum_tile(
                        slopes + r * SUMMED, packed + k * SUMMED, own + (r * inner + k) * LANES, rows - r, inner - k, inner
                    );
        }
    }
    for (long i = start; i < stop; i++) {
        float *out = task->out + task->order[i] * rows * inner;
        for (long r = 0; r < rows * inner; r++) out[r] = (float)sum_lanes(load(sums + (i - start) * each + r * LANES));
    }
    free(buffer);
}

/* Compute (M, N) × (K, N)ᵀ, the gradient of the weights of a product. */
void product_gradient(Parallel parallel, long threads, long count, const Product *task) {
    spread(parallel, threads, (count + task->run - 1) / task->run, product_gradient_item, task);
}

/* ---- append_scale --------------------------------------------------------------------------------------------------

   In float64, because in float32 rounding errors of a constant channel would be scaled up to a shape. NaN and infinity
   are preserved, hence `a < b ? b : a`, where a may be NaN. */

typedef double dvec __attribute__((vector_size(4 * LANES), aligned(8), may_alias));
#define JOINTS (LANES / 2)

/* Return the sum of n numbers, or of their squares. */
INLINE double sum_doubles(const double *x, long n, int squared) {
    dvec sum[4] = {{0}};
    long i = 0;
    for (; i + 4 * JOINTS <= n; i += 4 * JOINTS)
        for (int j = 0; j < 4; j++) {
            const dvec own = *(const dvec *)(x + i + j * JOINTS);
            if (squared)
                sum[j] += own * own;
            else
                sum[j] += own;
        }
    const dvec together = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    double total = 0.0;
    for (int j = 0; j < JOINTS; j++) total += together[j];
    for (; i < n; i++) total += squared ? x[i] * x[i] : x[i];
    return total;
}

/* Subtract the mean of a row and return it. The copy is exactly 0 for a constant row. */
static double center(const float *x, long n, double *copy) {
    const double first = x[0];
    for (long i = 0; i < n; i++) copy[i] = x[i] - first;
    const double mean = sum_doubles(copy, n, 0) / n;
    for (long i = 0; i < n; i++) copy[i] -= mean;
    return first + mean;
}

/* Compute append_scale: windows (N, C, T) -> (N, 3C, T). */
void append_scale(long windows, long channels, long times, double flat, double quiet, const float *x, float *out,
                  double *buffer) {
    for (long n = 0; n < windows; n++, out += 3 * channels * times)
        for (long c = 0; c < channels; c++, x += times) {
            const double mean = center(x, times, buffer), spread = sqrt(sum_doubles(buffer, times, 1) / times);
            const double factor = 1.0 / (spread < flat ? flat : spread);
            const float level = (float)mean, size = (float)log(spread + quiet);
            float *shape = out + c * times, *means = shape + channels * times, *sizes = means + channels * times;
            for (long t = 0; t < times; t++) {
                shape[t] = (float)(buffer[t] * factor);
                means[t] = level;
                sizes[t] = size;
            }
        }
}

/* ---- length scales -------------------------------------------------------------------------------------------------- */

typedef struct {
    const float *nearness, *target; /* (rows, count), (rows,) */
    float *place;                   /* (rows,) */
    long count, halvings, newtons;
    float bracket;
} Scales;

/* Add the weights of a row, weights times their logarithms, and weights times squared logarithms. */
INLINE void add_weights(const float *nearness, float scale, int vectors, vec sums[3]) {
    for (int k = 0; k < vectors; k++) {
        vec scaled = scale * load(nearness + k * LANES);
        scaled = choose(scaled < -86.0f, all(-86.0f), scaled); /* where the exponential is practically 0 */
        vec weight = exp_vec(scaled);
        sums[0] += weight;
        sums[1] += weight * scaled;
        sums[2] += weight * scaled * scaled;
    }
}

/* Compute `_log_scale` of censoring/kernel_matrices.py; a row stays in the L1 cache for all steps. */
static void scales_item(const void *argument, long row) {
    const Scales *task = argument;
    const float *nearness = task->nearness + row * task->count;
    float low = -task->bracket, high = task->bracket, place = 0.0f;
    for (long step = 0; step < task->halvings + task->newtons; step++) {
        const float scale = expf(place);
        vec sums[3] = {{0}};
        long i = 0;
        for (; i + AHEAD * LANES <= task->count; i += AHEAD * LANES) add_weights(nearness + i, scale, AHEAD, sums);
        for (; i + LANES <= task->count; i += LANES) add_weights(nearness + i, scale, 1, sums);
        if (i < task->count) { /* the remaining lanes have weight 0 */
            float buffer[LANES];
            store(buffer, all(-1e30f));
            memcpy(buffer, nearness + i, 4 * (task->count - i));
            add_weights(buffer, scale, 1, sums);
        }
        double total = sum_lanes(sums[0]);
        total = total < 1.17549435e-38 ? 1.17549435e-38 : total;
        const double mean = sum_lanes(sums[1]) / total;
        const float away = (float)(log(total) - mean) - task->target[row];
        *(away > 0.0f ? &low : &high) = place;
        if (step >= task->halvings) {
            double falls = sum_lanes(sums[2]) / total - mean * mean;
            falls = falls < 1.17549435e-38 ? 1.17549435e-38 : falls;
            place = (float)(place + away / falls);
        }
        if (step < task->halvings || !(place >= low && place <= high)) place = (low + high) / 2.0f;
    }
    task->place[row] = place;
}

void log_scales(Parallel parallel, long threads, long rows, const Scales *task) {
    spread(parallel, threads, rows, scales_item, task);
}

/* ---- indices ---------------------------------------------------------------------------------------------------- */

/* Tell whether an index points outside [0, bound). */
int outside(const int64_t *index, long count, long bound) {
    for (long i = 0; i < count; i++)
        if (index[i] < 0 || index[i] >= bound) return 1;
    return 0;
}

/* ---- random bits --------------------------------------------------------------------------------------------------- */

/* Compute `mix` of randomness.py. */
void mix_words(long count, const uint32_t *words, uint32_t *out) {
    for (long i = 0; i < count; i++) {
        uint32_t h = words[i];
        h = (h ^ (h >> 16)) * 0x85EBCA6Bu;
        h = (h ^ (h >> 13)) * 0xC2B2AE35u;
        out[i] = h ^ (h >> 16);
    }
}
