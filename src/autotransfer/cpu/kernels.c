/* Kernels of a training step for CPUs. Tensors are float32 and contiguous, with the member on axis 0.

   The code uses the vector types of gcc and clang, so that it compiles for every processor. One thread processes a row
   or filter from beginning to end, in an order that depends only on the size. Results therefore depend neither on the
   number of threads nor on other members of the stack. The code is not compiled with -ffast-math, because infinite and
   NaN values of diverging members must be preserved. */

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
/* Number of sums that are kept in the 32 or 16 vector registers of a processor. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define SUMS 16
#else
#define SUMS 8
#endif
#define UNROLL 4 /* number of vectors whose exponentials are computed together */
#define CHUNK 512 /* number of samples that are processed together, which fit into the L1 cache */
#define MAX_TAPS 1024 /* maximum length of a filter */

typedef float vec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef int32_t ivec __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vec load(const float *from) { return *(const vec *)from; }
INLINE void store(float *to, vec value) { *(vec *)to = value; }
INLINE vec broadcast(float value) { return value - (vec){0}; }
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

   Threads take items one by one. torch's threads are used (`parallel` is GOMP_parallel of torch's library), because
   a second pool of threads would compete for the cores. If `parallel` is NULL, threads are created for the call. */

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

static void distribute(Parallel parallel, long threads, long items, void (*item)(const void *, long), const void *task) {
    Work work = {item, task, items, 0};
    if (threads > items) threads = items;
    if (threads <= 1) {
        work_on(&work);
    } else if (parallel) {
        parallel(work_on, &work, (unsigned)threads, 0);
    } else {
        pthread_t created[64];
        long count = 0;
        while (count < threads - 1 && count < 64 && !pthread_create(&created[count], NULL, work_in_thread, &work)) count++;
        work_on(&work);
        for (long i = 0; i < count; i++) pthread_join(created[i], NULL);
    }
}

/* ---- normalization, ELU, pooling, dropout ------------------------------------------------------------------------- */

/* Return e^x for x ≤ 0 with an error of about one unit in the last place, e^-86 for x < -86 and NaN for NaN. */
INLINE vec exp_vec(vec x) {
    const vec shift = broadcast(12582912.0f); /* 1.5 · 2^23; the last bits of x + shift are an integer */
    x = choose(x < -86.0f, broadcast(-86.0f), x);
    vec shifted = x * 1.44269504f + shift;
    vec power = shifted - shift;
    vec r = x - power * 0.693359375f;
    r = r - power * -2.12194440e-4f;
    vec p = 0.0013815060f * r + 0.0083687147f;
    p = p * r + 0.0416683815f;
    p = p * r + 0.1666652113f;
    p = p * r + 0.4999999404f;
    p = p * (r * r) + r + 1.0f;
    return p * (vec)(((ivec)shifted + 127) << 23);
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

/* Return the derivative of ELU at h; for h ≤ 0 it equals ELU(h) + 1. */
INLINE vec elu_slope(vec h) { return exp_vec(choose(h > 0.0f, broadcast(0.0f), h)); }

INLINE vec elu(vec h) { return choose(h > 0.0f, h, broadcast(0.0f)) + (elu_slope(h) - 1.0f); }

typedef struct {
    const float *v, *gamma, *beta;                       /* (P, F, B·T), (P, F), (P, F) */
    const int16_t *draws;                                /* (G, F·B·T') */
    const int64_t *group;                                /* (P,) */
    const int32_t *threshold;                            /* (P,) */
    const float *keep_scale;                             /* (P,) */
    float *out, *squares, *mean, *variance;              /* (P, F, B·T') twice, squares may be NULL; (P, F) */
    const float *grad, *grad_squares;                    /* gradients of out and squares */
    float *grad_v, *grad_gamma, *grad_beta;
    long features, batch, times, pool;
    float eps;
} NormPool;

/* Windows of a row, of which the first `pooled` samples are pooled. If all samples are pooled, the row is one window. */
typedef struct {
    long windows, length, pooled, units;
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

static double sum_squares_about(const float *v, long n, float mean) {
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
    const float *values, const float *v, long units, int pool, const int16_t *draw, int threshold, float factor, float *out,
    float *squares
) {
    for (long u = 0; u < units; u++) {
        float total = values[u * pool];
        for (int i = 1; i < pool; i++) total += values[u * pool + i];
        out[u] = draw[u] >= threshold ? total * factor : 0.0f;
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
    const float mean = (float)(sum_of(v, n) / n), variance = (float)(sum_squares_about(v, n, mean) / n);
    task->mean[row] = mean;
    task->variance[row] = variance;

    const float scale = task->gamma[row] / sqrtf(variance + task->eps), shift = task->beta[row];
    const long units = shape.windows * shape.units, chunk = CHUNK / pool * pool;
    const int16_t *draw = task->draws + (task->group[member] * task->features + feature) * units;
    const int threshold = task->threshold[member];
    const float factor = task->keep_scale[member] / pool;
    float *out = task->out + row * units, *squares = task->squares ? task->squares + row * units : NULL;
    float values[CHUNK + LANES];
    for (long window = 0; window < shape.windows; window++, v += shape.length) {
        for (long start = 0; start < shape.pooled; start += chunk) {
            const long count = shape.pooled - start < chunk ? shape.pooled - start : chunk;
            long i = 0;
            for (; i + UNROLL * LANES <= count; i += UNROLL * LANES) {
                vec h[UNROLL];
                for (int j = 0; j < UNROLL; j++) h[j] = (load(v + start + i + j * LANES) - mean) * scale + shift;
                for (int j = 0; j < UNROLL; j++) store(values + i + j * LANES, elu(h[j]));
            }
            for (; i + LANES <= count; i += LANES) store(values + i, elu((load(v + start + i) - mean) * scale + shift));
            if (i < count) store(values + i, elu((load_part(v + start + i, count - i) - mean) * scale + shift));
            pool_chunk(values, v + start, count / pool, pool, draw, threshold, factor, out, squares);
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
INLINE void unpool(const float *grad, const int16_t *draw, long units, int pool, int threshold, float factor, float *slope) {
    for (long u = 0; u < units; u++) {
        float value = draw[u] >= threshold ? grad[u] * factor : 0.0f;
        for (int i = 0; i < pool; i++) slope[u * pool + i] = value;
    }
}

INLINE void backward_row(const NormPool *task, long row, int pool) {
    const Shape shape = shape_of(task);
    const long n = task->batch * task->times, member = row / task->features, feature = row % task->features;
    const float mean = task->mean[row], inverse = 1.0f / sqrtf(task->variance[row] + task->eps);
    const float scale = task->gamma[row] * inverse, shift = task->beta[row];
    const long units = shape.windows * shape.units, chunk = CHUNK / pool * pool;
    const int16_t *draw = task->draws + (task->group[member] * task->features + feature) * units;
    const int threshold = task->threshold[member];
    const float factor = task->keep_scale[member] / pool, two_over_pool = 2.0f / pool;
    const float *v = task->v + row * n, *grad = task->grad + row * units;
    float *grad_v = task->grad_v + row * n;
    float unpooled[CHUNK + LANES];
    double total = 0.0, dot = 0.0;

    /* First pass: the gradient of the normalized signal and its sums. */
    for (long window = 0; window < shape.windows; window++, v += shape.length, grad_v += shape.length) {
        for (long start = 0; start < shape.pooled; start += chunk) {
            const long count = shape.pooled - start < chunk ? shape.pooled - start : chunk;
            unpool(grad, draw, count / pool, pool, threshold, factor, unpooled);
            grad += count / pool;
            draw += count / pool;
            vec sum = {0}, sum_dot = {0};
            long i = 0;
            for (; i + UNROLL * LANES <= count; i += UNROLL * LANES) {
                vec centered[UNROLL], g[UNROLL];
                for (int j = 0; j < UNROLL; j++) centered[j] = load(v + start + i + j * LANES) - mean;
                for (int j = 0; j < UNROLL; j++)
                    g[j] = elu_slope(centered[j] * scale + shift) * load(unpooled + i + j * LANES);
                for (int j = 0; j < UNROLL; j++) {
                    sum += g[j];
                    sum_dot += g[j] * centered[j];
                    store(grad_v + start + i + j * LANES, g[j]);
                }
            }
            for (; i + LANES <= count; i += LANES) {
                vec centered = load(v + start + i) - mean;
                vec g = elu_slope(centered * scale + shift) * load(unpooled + i);
                sum += g;
                sum_dot += g * centered;
                store(grad_v + start + i, g);
            }
            if (i < count) {
                vec centered = load_part(v + start + i, count - i) - mean;
                vec g = elu_slope(centered * scale + shift) * load_part(unpooled + i, count - i);
                sum += g;
                sum_dot += g * centered;
                store_part(grad_v + start + i, g, count - i);
            }
            total += sum_lanes(sum);
            dot += sum_lanes(sum_dot);
        }
        for (long i = shape.pooled; i < shape.length; i++) grad_v[i] = 0.0f;
    }
    task->grad_beta[row] = (float)total;
    task->grad_gamma[row] = (float)(dot * inverse);

    /* Second pass: the gradient of the signal, in place. */
    const float mean_term = (float)(scale * total / n), projection = (float)(scale * inverse * inverse * dot / n);
    v = task->v + row * n;
    grad_v = task->grad_v + row * n;
    for (long i = 0; i < n; i++) grad_v[i] = scale * grad_v[i] - mean_term - projection * (v[i] - mean);
    if (!task->grad_squares) return;
    const float *slope = task->grad_squares + row * units;
    for (long window = 0; window < shape.windows; window++, v += shape.length, grad_v += shape.length)
        for (long u = 0; u < shape.units; u++, slope++)
            for (int i = 0; i < pool; i++) grad_v[u * pool + i] += two_over_pool * v[u * pool + i] * *slope;
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
    distribute(parallel, threads, members * task->features, forward_item, task);
}

void norm_pool_backward(Parallel parallel, long threads, long members, const NormPool *task) {
    distribute(parallel, threads, members * task->features, backward_item, task);
}

/* ---- filters along time -------------------------------------------------------------------------------------------- */

typedef struct {
    const float *x, *w, *grad; /* (N, R, T), (N, K), (N, R, T) */
    float *out;                /* (N, R, T), or (N, K) of the filters' gradient */
    long rows, times, taps, left, flipped;
} Filter;

#define SHARING 4 /* number of factors that use each loaded vector of a signal */
#define GROUPS_PER_ITEM 4  /* groups of LANES rows per item */

/* LANES rows are interleaved, so that a vector has one sample of each row, and filtered together. All loads are whole
   vectors, no factor is 0 as in a Toeplitz matrix, and consecutive taps use the same vectors. Interleaving takes about a
   tenth of the time of filtering. */

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (ivec){__VA_ARGS__})
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
            merged[2 * i] = SHUFFLE(square[i], square[i + LANES / 2], FIRST_HALVES);
            merged[2 * i + 1] = SHUFFLE(square[i], square[i + LANES / 2], LAST_HALVES);
        }
#pragma GCC unroll 16
        for (int i = 0; i < LANES; i++) square[i] = merged[i];
    }
}

/* Interleave up to LANES of `count` rows (count, times): store `times` vectors with one sample of each row, 0 for missing
   rows. */
static void interleave(const float *rows, long count, long times, float *interleaved) {
    for (long start = 0; start < times; start += LANES) {
        const long t = start + LANES <= times || times < LANES ? start : times - LANES; /* the last square may overlap */
        vec square[LANES];
        for (int r = 0; r < LANES; r++) {
            if (r >= count)
                square[r] = broadcast(0.0f);
            else
                square[r] = times < LANES ? load_part(rows + r * times, times) : load(rows + r * times + t);
        }
        transpose(square);
        for (int i = 0; i < LANES && i < times; i++) store(interleaved + (t + i) * LANES, square[i]);
    }
}

/* Compute the inverse of `interleave`. */
static void deinterleave(const float *interleaved, long count, long times, float *rows) {
    for (long start = 0; start < times; start += LANES) {
        const long t = start + LANES <= times || times < LANES ? start : times - LANES;
        vec square[LANES];
        for (int i = 0; i < LANES; i++) square[i] = load(interleaved + (t + (i < times ? i : 0)) * LANES);
        transpose(square);
        for (int r = 0; r < LANES && r < count; r++) {
            if (times < LANES)
                store_part(rows + r * times, square[r], times);
            else
                store(rows + r * times + t, square[r]);
        }
    }
}

/* Compute `width` sums over k < count; sum s is Σ_k factor[k] · x[s + k]. Sums with scalar factors are stored in total,
   sums with vector factors are added to total. */
INLINE void sum_shifted(const float *x, const float *factor, long count, int is_vec, int width, float *total) {
    vec sum[SUMS];
#pragma GCC unroll 16
    for (int s = 0; s < width; s++) sum[s] = broadcast(0.0f);
    long k = 0;
    for (; k + SHARING <= count; k += SHARING) {
        vec factors[SHARING];
#pragma GCC unroll 4
        for (int m = 0; m < SHARING; m++) factors[m] = is_vec ? load(factor + (k + m) * LANES) : broadcast(factor[k + m]);
#pragma GCC unroll 20
        for (int j = 0; j < width + SHARING - 1; j++) {
            const vec samples = load(x + (k + j) * LANES);
#pragma GCC unroll 4
            for (int m = 0; m < SHARING; m++)
                if (m <= j && j - m < width) sum[j - m] += factors[m] * samples;
            __asm__ volatile("" ::: "memory"); /* keeps gcc from loading more samples than registers hold */
        }
    }
    for (; k < count; k++) {
        const vec factors = is_vec ? load(factor + k * LANES) : broadcast(factor[k]);
#pragma GCC unroll 16
        for (int s = 0; s < width; s++) sum[s] += factors * load(x + (k + s) * LANES);
    }
#pragma GCC unroll 16
    for (int s = 0; s < width; s++) {
        if (is_vec) sum[s] += load(total + s * LANES);
        store(total + s * LANES, sum[s]);
    }
}

/* Return how many of n sums are computed next: as many as registers hold, otherwise a power of two. */
INLINE int next_width(long n) { return n >= SUMS ? SUMS : n >= 8 ? 8 : n >= 4 ? 4 : n >= 2 ? 2 : 1; }

INLINE void sum_next(const float *x, const float *factor, long count, int is_vec, int width, float *total) {
    if (width == SUMS)
        sum_shifted(x, factor, count, is_vec, SUMS, total);
    else if (width == 8)
        sum_shifted(x, factor, count, is_vec, 8, total);
    else if (width == 4)
        sum_shifted(x, factor, count, is_vec, 4, total);
    else if (width == 2)
        sum_shifted(x, factor, count, is_vec, 2, total);
    else
        sum_shifted(x, factor, count, is_vec, 1, total);
}

/* Filter `padded`: `times` vectors, `left` vectors of zeros before them, and taps - 1 - left vectors of zeros after them.
   Taps are skipped if they lie on zeros in all sums. */
static void filter_interleaved(const float *padded, const float *w, long times, long taps, long left, float *out) {
    for (long t = 0, width; t < times; t += width) {
        width = next_width(times - t);
        const long begin = left - t - width + 1 > 0 ? left - t - width + 1 : 0;
        const long end = times + left - t < taps ? times + left - t : taps;
        sum_next(padded + (t + begin) * LANES, w + begin, end - begin, 0, (int)width, out + t * LANES);
    }
}

/* Add the gradient of every tap to `sums`, per lane: the sum over t of slopes[t] · padded[t + k]. */
static void gradient_interleaved(
    const float *padded, const float *slopes, long times, long taps, long left, float *sums
) {
    for (long k = 0, width; k < taps; k += width) {
        width = next_width(taps - k);
        const long begin = left - k - width + 1 > 0 ? left - k - width + 1 : 0;
        const long end = times + left - k < times ? times + left - k : times;
        if (begin >= end) continue; /* these taps lie on zeros */
        sum_next(padded + (k + begin) * LANES, slopes + begin * LANES, end - begin, 1, (int)width, sums + k * LANES);
    }
}

static void filter_item(const void *argument, long number) {
    const Filter *task = argument;
    const long item_rows = GROUPS_PER_ITEM * LANES, blocks = (task->rows + item_rows - 1) / item_rows;
    const long n = number / blocks, start = number % blocks * item_rows, taps = task->taps, times = task->times;
    const long stop = start + item_rows < task->rows ? start + item_rows : task->rows;
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
    const long item_rows = GROUPS_PER_ITEM * LANES;
    distribute(parallel, threads, count * ((task->rows + item_rows - 1) / item_rows), filter_item, task);
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
    distribute(parallel, threads, count, gradient_item, task);
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
    const int16_t *draws;                      /* (G, F·B·T'); group, threshold and keep_scale as in NormPool */
    const int32_t *threshold;
    const float *keep_scale;
    float *v;                                  /* (P, F, V, T, LANES) signals before normalization */
    float *out, *power;                        /* (P, F, B, T'), (P, F, B, S): either may be NULL */
    float *level, *square;                     /* (P, F, V, S, LANES), if there is power but no units */
    float *mean, *variance;                    /* (P, F) */
    const float *grad, *grad_power;            /* gradients of out and power */
    float *grad_spatial, *grad_constant, *grad_w, *grad_gamma, *grad_beta;
    float *grad_x; /* only in a second block */
    long channels, features, depth, batch, times, taps, left, pool, segments, length;
    long rows;       /* signals of a member per item */
    long as_latents; /* whether units are (P, B, F, T') */
    float eps;
} Block;

/* MIXING vectors of JOINT signals are mixed together, so that each loaded vector of a channel is used JOINT times. */
#if defined(__AVX512F__) || defined(__aarch64__)
#define JOINT 4
#else
#define JOINT 2
#endif
#define MIXING 4
#define ROUND_UP(rows) (((rows) + JOINT - 1) / JOINT * JOINT)
#define GROUPS(batch) (((batch) + LANES - 1) / LANES)

INLINE long items_of(const Block *task) { return (task->features + task->rows - 1) / task->rows; }
INLINE long lanes_of(const Block *task, long v) {
    return task->batch - v * LANES < LANES ? task->batch - v * LANES : LANES;
}

/* Set the lanes from `first` on to `value` in `count` vectors. */
static void fill_lanes(float *signal, long count, long first, float value) {
    for (long t = 0; t < count; t++)
        for (long i = first; i < LANES; i++) signal[t * LANES + i] = value;
}

/* Compute `width` ≤ MIXING vectors of JOINT mixtures of channels; stride: distance between channels. */
INLINE void mix_some(
    const float *x, long stride, long channels, const float **weight, const vec constant[JOINT], long t, int width,
    float **out
) {
    vec total[JOINT][MIXING];
    for (int i = 0; i < JOINT; i++)
        for (int j = 0; j < width; j++) total[i][j] = constant[i];
    for (long c = 0; c < channels; c++) {
        vec samples[MIXING];
        for (int j = 0; j < width; j++) samples[j] = load(x + c * stride + (t + j) * LANES);
        for (int i = 0; i < JOINT; i++)
            for (int j = 0; j < width; j++) total[i][j] += samples[j] * weight[i][c];
    }
    for (int i = 0; i < JOINT; i++)
        for (int j = 0; j < width; j++) store(out[i] + (t + j) * LANES, total[i][j]);
}

INLINE void mix_all(
    const float *x, long stride, long channels, long times, const float **weight, const vec constant[JOINT],
    float **out
) {
    long t = 0;
    for (; t + MIXING <= times; t += MIXING) mix_some(x, stride, channels, weight, constant, t, MIXING, out);
    for (; t < times; t++) mix_some(x, stride, channels, weight, constant, t, 1, out);
}

/* Compute JOINT mixtures of a member, from signal r on, for one group of windows; missing signals repeat signal r. */
static void mix_joint(const Block *task, long member, long r, long v, float **out) {
    const long channels = task->channels, times = task->times, stride = times * LANES;
    const float *x = task->x + (task->group[member] * GROUPS(task->batch) + v) * channels * stride, *weight[JOINT];
    vec constant[JOINT];
    for (int i = 0; i < JOINT; i++) {
        const long row = member * task->features + (r + i < task->features ? r + i : r);
        weight[i] = task->spatial + row * channels;
        constant[i] = broadcast(0.0f);
        if (task->constant) constant[i] = load_part(task->constant + row * task->batch + v * LANES, lanes_of(task, v));
    }
    mix_all(x, stride, channels, times, weight, constant, out);
}

/* Compute mixtures (rows, T, LANES) of channels (channels, T, LANES) with weights (rows, channels). `out` has memory for
   a multiple of JOINT mixtures, which are `stride` apart. */
static void mix_interleaved(
    const float *x, long channels, long times, const float *weight, long rows, float *out, long stride
) {
    const vec none[JOINT] = {{0}};
    for (long r = 0; r < rows; r += JOINT) {
        const float *weights[JOINT];
        float *targets[JOINT];
        for (long i = 0; i < JOINT; i++) {
            weights[i] = weight + (r + i < rows ? r + i : r) * channels;
            targets[i] = out + (r + i) * stride;
        }
        mix_all(x, times * LANES, channels, times, weights, none, targets);
    }
}

/* Mix and filter the signals `start` to `stop` of a member. buffer: zeros for JOINT padded signals. */
static void filter_mixed(const Block *task, long member, long start, long stop, float *buffer) {
    const long times = task->times, taps = task->taps, groups = GROUPS(task->batch), stride = (times + taps - 1) * LANES;
    float *mixed[JOINT];
    for (long i = 0; i < JOINT; i++) mixed[i] = buffer + i * stride + task->left * LANES;
    for (long v = 0; v < groups; v++)
        for (long r = start; r < stop; r += JOINT) {
            mix_joint(task, member, r, v, mixed);
            for (long i = 0; i < JOINT && r + i < stop; i++) {
                const float *w = task->w + (member * task->features + r + i) / task->depth * taps;
                float *out = task->v + ((member * task->features + r + i) * groups + v) * times * LANES;
                filter_interleaved(buffer + i * stride, w, times, taps, task->left, out);
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

/* Compute `count` means of `length` samples or squared samples, after subtracting `mean`. */
INLINE void means_interleaved(const float *v, long count, long length, float mean, int squared, float *out) {
    for (long s = 0; s < count; s++) {
        vec total = {0};
        for (long i = 0; i < length; i++, v += LANES) {
            const vec value = load(v) - mean;
            if (squared)
                total += value * value;
            else
                total += value;
        }
        store(out + s * LANES, total / (float)length);
    }
}

/* Positions of the units of a signal: `windows` windows of `count` units, with distance `stride` between windows.
   Contiguous units are treated as one window. */
typedef struct {
    long first, windows, stride, count;
} Order;

INLINE Order order_of(const Block *task, long row) {
    const long steps = task->times / task->pool, features = task->features, units = task->batch * steps;
    if (!task->as_latents) return (Order){row * units, 1, 0, units};
    return (Order){row / features * features * units + row % features * steps, task->batch, features * steps, steps};
}

/* Apply normalization, ELU, pooling and dropout to a signal, and compute the power of its segments. buffer: memory for
   T · LANES + B·T' numbers. */
static void finish_units(const Block *task, long row, float *buffer) {
    const long member = row / task->features, times = task->times, groups = GROUPS(task->batch), size = times * LANES;
    const long pool = task->pool, steps = times / pool, units = task->batch * steps, count = task->segments;
    float *v = task->v + row * groups * size, *last = v + (groups - 1) * size, *pooled = buffer + size;
    const long samples = task->batch * times, lanes = lanes_of(task, groups - 1);
    const float mean = (float)(sum_of(v, groups * size) / samples);
    fill_lanes(last, times, lanes, mean);
    const float variance = (float)(sum_squares_about(v, groups * size, mean) / samples);
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
    const int threshold = task->threshold[member];
    const float factor = task->keep_scale[member] / pool;
    const Order order = order_of(task, row);
    float *out = task->out + order.first;
    for (long b = 0; b < order.windows; b++, out += order.stride, pooled += order.count, draw += order.count)
        for (long i = 0; i < order.count; i++) out[i] = draw[i] >= threshold ? pooled[i] * factor : 0.0f;
}

/* Compute the power of segments of a filtered signal after normalization, as variance in the segment plus squared mean.
   Neither term is a small difference of large numbers. */
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
            const vec centered = load(level + i) - mean, normalized = centered * scale + shift;
            store(level + i, centered);
            store(buffer + i, normalized * normalized + scale * scale * (load(square + i) - centered * centered));
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
    float *scratch = buffer + JOINT * (times + task->taps - 1) * LANES;
    for (long row = first; row < last; row++) {
        if (task->out)
            finish_units(task, row, scratch);
        else
            finish_power(task, row, scratch);
    }
    free(buffer);
}

void block_forward(Parallel parallel, long threads, long members, const Block *task) {
    distribute(parallel, threads, members * items_of(task), block_item, task);
}

/* Coefficients of the gradient of a filtered signal v: factor · slope + (v - mean) · bend + offset. The first term is the
   gradient through units. Bend and offset are constant in a segment, and in the remainder after the last segment. */
typedef struct {
    float *slope;         /* (V, T, LANES); NULL: there are no units */
    float *bend, *offset; /* (V, S + 1, LANES) */
    float factor, mean;
} Slopes;

#define SUMMED_UNITS 8 /* number of units whose slopes are summed first, against rounding errors */

INLINE void slope_interleaved(
    const float *v, const float *grad, long units, int pool, float mean, float scale, float shift, float *slope, vec *total,
    vec *dot
) {
    for (long start = 0; start < units; start += SUMMED_UNITS) {
        const long stop = start + SUMMED_UNITS < units ? start + SUMMED_UNITS : units;
        vec sum = {0}, sum_dot = {0};
        for (long u = start; u < stop; u++, v += pool * LANES, slope += pool * LANES) {
            const vec unit_grad = load(grad + u * LANES);
            for (int i = 0; i < pool; i++) {
                const vec centered = load(v + i * LANES) - mean, g = elu_slope(centered * scale + shift) * unit_grad;
                sum += g;
                sum_dot += g * centered;
                store(slope + i * LANES, g);
            }
        }
        *total += sum;
        *dot += sum_dot;
    }
}

/* Compute the slopes of units and power. buffer: memory for B·T' + T' · LANES numbers. */
static void slopes_of_units(const Block *task, long row, float *buffer, Slopes *slopes) {
    const long member = row / task->features, times = task->times, groups = GROUPS(task->batch), size = times * LANES;
    const long pool = task->pool, steps = times / pool, units = task->batch * steps, count = task->segments;
    const float *v = task->v + row * groups * size;
    const int16_t *draw = task->draws + (task->group[member] * task->features + row % task->features) * units;
    const int threshold = task->threshold[member];
    const float factor = task->keep_scale[member] / pool;
    const Order order = order_of(task, row);
    const float *grad = task->grad + order.first;
    for (long b = 0; b < order.windows; b++, grad += order.stride, draw += order.count)
        for (long i = 0; i < order.count; i++) buffer[b * order.count + i] = draw[i] >= threshold ? grad[i] * factor : 0.0f;

    const float mean = task->mean[row], inverse = 1.0f / sqrtf(task->variance[row] + task->eps);
    const float scale = task->gamma[row] * inverse, shift = task->beta[row];
    float *interleaved = buffer + units, *slope = slopes->slope;
    double total = 0.0, dot = 0.0;
    for (long g = 0; g < groups; g++, v += size, slope += size) {
        vec sum = {0}, sum_dot = {0};
        interleave(buffer + g * LANES * steps, lanes_of(task, g), steps, interleaved);
        if (pool == 4)
            slope_interleaved(v, interleaved, steps, 4, mean, scale, shift, slope, &sum, &sum_dot);
        else
            slope_interleaved(v, interleaved, steps, (int)pool, mean, scale, shift, slope, &sum, &sum_dot);
        memset(slope + steps * pool * LANES, 0, 4 * (times - steps * pool) * LANES);
        total += sum_lanes(sum);
        dot += sum_lanes(sum_dot);
    }
    task->grad_beta[row] = (float)total;
    task->grad_gamma[row] = (float)(dot * inverse);

    const double samples = (double)task->batch * times;
    const float mean_term = (float)(scale * total / samples);
    const float projection = (float)(scale * inverse * inverse * dot / samples);
    slopes->factor = scale;
    slopes->mean = mean;
    for (long g = 0; g < groups; g++) {
        float *bend = slopes->bend + g * (count + 1) * LANES, *offset = slopes->offset + g * (count + 1) * LANES;
        if (count)
            interleave(task->grad_power + (row * task->batch + g * LANES) * count, lanes_of(task, g), count, interleaved);
        for (long s = 0; s < count; s++) {
            const vec power_grad = load(interleaved + s * LANES) * (2.0f / task->length);
            store(bend + s * LANES, power_grad - projection);
            store(offset + s * LANES, power_grad * mean - mean_term);
        }
        store(bend + count * LANES, broadcast(-projection));
        store(offset + count * LANES, broadcast(-mean_term));
    }
}

/* Compute the slopes of power (scale · level + shift)² + scale² · (square - level²). buffer: S · LANES numbers. */
static void slopes_of_power(const Block *task, long row, float *buffer, Slopes *slopes) {
    const long groups = GROUPS(task->batch), count = task->segments, n = task->batch * count;
    const float *level = task->level + row * groups * count * LANES, *square = task->square + row * groups * count * LANES;
    const float inverse = 1.0f / sqrtf(task->variance[row] + task->eps), length = task->length;
    const float scale = task->gamma[row] * inverse, shift = task->beta[row];
    double grad_scale = 0.0, grad_shift = 0.0;
    for (long g = 0; g < groups; g++) {
        float *bend = slopes->bend + g * (count + 1) * LANES;
        vec sum_scale = {0}, sum_shift = {0};
        interleave(task->grad_power + (row * task->batch + g * LANES) * count, lanes_of(task, g), count, buffer);
        for (long i = 0; i < count * LANES; i += LANES) {
            const vec value = load(buffer + i), mean = load(level + g * count * LANES + i);
            sum_scale += value * (scale * load(square + g * count * LANES + i) + shift * mean);
            sum_shift += value * (scale * mean + shift);
            store(bend + i, value);
        }
        grad_scale += 2.0 * sum_lanes(sum_scale);
        grad_shift += 2.0 * sum_lanes(sum_shift);
    }
    task->grad_gamma[row] = (float)(grad_scale * inverse);
    task->grad_beta[row] = (float)grad_shift;
    const float grad_variance = (float)(-0.5 * grad_scale * scale * inverse * inverse / n);
    const float mean_term = (float)(scale * grad_shift / n); /* centering removes the mean of the gradient */
    slopes->mean = task->mean[row];
    for (long g = 0; g < groups; g++) {
        float *bend = slopes->bend + g * (count + 1) * LANES, *offset = slopes->offset + g * (count + 1) * LANES;
        for (long i = 0; i < count * LANES; i += LANES) {
            const vec value = load(bend + i);
            store(offset + i, (value * (2.0f * scale * shift) - mean_term) / length);
            store(bend + i, (value * (scale * scale) + grad_variance) * 2.0f / length);
        }
        store(bend + count * LANES, broadcast(0.0f));
        store(offset + count * LANES, broadcast(0.0f));
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
            vec value = (load(v + t * LANES) - mean) * bend + offset;
            if (slope) value += slopes->factor * load(slope + t * LANES);
            store(out + t * LANES, value);
        }
    }
    fill_lanes(out, times, lanes_of(task, g), 0.0f);
}

/* Add the products of JOINT gradients and `width` ≤ MIXING channels, summed over one group of windows, to `sums`. */
INLINE void sum_channels(
    const float **grad, const float *x, long stride, long times, int width, float **sums
) {
    vec total[JOINT][MIXING];
    for (int i = 0; i < JOINT; i++)
        for (int j = 0; j < width; j++) total[i][j] = broadcast(0.0f);
    for (long t = 0; t < times; t++) {
        vec values[JOINT];
        for (int i = 0; i < JOINT; i++) values[i] = load(grad[i] + t * LANES);
        for (int j = 0; j < width; j++) {
            const vec samples = load(x + j * stride + t * LANES);
            for (int i = 0; i < JOINT; i++) total[i][j] += values[i] * samples;
        }
    }
    for (int i = 0; i < JOINT; i++)
        for (int j = 0; j < width; j++) store(sums[i] + j * LANES, load(sums[i] + j * LANES) + total[i][j]);
}

/* Add the products of JOINT gradients and all channels to `sums`; stride: distance between channels. */
static void sum_all_channels(
    const float **grad, const float *x, long stride, long channels, long times, float *sums
) {
    for (long c = 0; c < channels; c++) {
        float *targets[JOINT];
        for (long i = 0; i < JOINT; i++) targets[i] = sums + (i * channels + c) * LANES;
        if (c + MIXING <= channels) {
            sum_channels(grad, x + c * stride, stride, times, MIXING, targets);
            c += MIXING - 1;
        } else {
            sum_channels(grad, x + c * stride, stride, times, 1, targets);
        }
    }
}

static void block_gradient_item(const void *argument, long number) {
    const Block *task = argument;
    const long items = items_of(task), member = number / items, start = number % items * task->rows;
    const long stop = start + task->rows < task->features ? start + task->rows : task->features, rows = stop - start;
    const long times = task->times, taps = task->taps, channels = task->channels, groups = GROUPS(task->batch);
    const long first = member * task->features + start, filters = rows / task->depth, right = taps - 1 - task->left;
    const long stride = (times + taps - 1) * LANES, size = times * LANES, bends = groups * (task->segments + 1) * LANES;
    const long units = task->grad ? task->batch * (times / task->pool) : 0, slopes_size = task->grad ? groups * size : 0;
    const long padded_rows = ROUND_UP(rows); /* including signals whose results are not used */
    const long n_zeros = 2 * JOINT * stride + JOINT * size + (filters * taps + padded_rows * channels) * LANES;
    float *buffer = malloc(4 * (n_zeros + padded_rows * (slopes_size + 2 * bends) + units + size + filters * taps));
    Slopes *slopes = calloc(padded_rows, sizeof *slopes);
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
    memset(buffer, 0, 4 * n_zeros); /* padding and sums */
    float *mixed = buffer, *padded_grad = mixed + JOINT * stride, *input_grad = padded_grad + JOINT * stride;
    float *sums = input_grad + JOINT * size, *channel_sums = sums + filters * taps * LANES;
    float *scratch = buffer + n_zeros, *reversed = scratch + units + size, *memory = reversed + filters * taps;
    for (long i = 0; i < rows; i++, memory += slopes_size + 2 * bends) {
        slopes[i] = (Slopes){slopes_size ? memory : NULL, memory + slopes_size, memory + slopes_size + bends, 0.0f, 0.0f};
        if (task->grad)
            slopes_of_units(task, first + i, scratch, &slopes[i]);
        else
            slopes_of_power(task, first + i, scratch, &slopes[i]);
    }
    const float *w = task->w + first / task->depth * taps;
    for (long i = 0; i < filters * taps; i++) reversed[i] = w[i / taps * taps + taps - 1 - i % taps];

    float *inputs[JOINT];
    const float *grads[JOINT];
    for (long i = 0; i < JOINT; i++) {
        inputs[i] = mixed + i * stride + task->left * LANES;
        grads[i] = input_grad + i * size;
    }
    for (long g = 0; g < groups; g++) {
        const float *x = task->x + (task->group[member] * groups + g) * channels * size;
        for (long r = 0; r < rows; r += JOINT) {
            mix_joint(task, member, start + r, g, inputs);
            for (long i = 0; i < JOINT && r + i < rows; i++) {
                const long filter = (r + i) / task->depth;
                float *signal_grad = padded_grad + i * stride + right * LANES, *mixed_grad = input_grad + i * size;
                gradient_of_signal(task, &slopes[r + i], first + r + i, g, signal_grad);
                gradient_interleaved(mixed + i * stride, signal_grad, times, taps, task->left, sums + filter * taps * LANES);
                filter_interleaved(padded_grad + i * stride, reversed + filter * taps, times, taps, right, mixed_grad);
                if (!task->grad_constant) continue;
                vec total = {0};
                for (long t = 0; t < times; t++) total += load(mixed_grad + t * LANES);
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
    distribute(parallel, threads, members * items_of(task), block_gradient_item, task);
}

/* Pad and filter the signals of a member for one group of windows. */
static void filter_signals(const Block *task, long member, long g, float *padded, float *filtered) {
    const long times = task->times, taps = task->taps, channels = task->channels, stride = (times + taps - 1) * LANES;
    for (long c = 0; c < channels; c++) {
        const long row = member * channels + c;
        const float *x = task->x + (row * task->batch + g * LANES) * times;
        interleave(x, lanes_of(task, g), times, padded + c * stride + task->left * LANES);
        filter_interleaved(padded + c * stride, task->w + row * taps, times, taps, task->left, filtered + c * times * LANES);
    }
}

static void second_item(const void *argument, long member) {
    const Block *task = argument;
    const long times = task->times, channels = task->channels, features = task->features, size = times * LANES;
    const long groups = GROUPS(task->batch), first = member * features, n_features = ROUND_UP(features);
    const long stride = (times + task->taps - 1) * LANES, units = task->batch * (times / task->pool);
    float *buffer = calloc(channels * (stride + size) + (n_features + 1) * size + units, 4);
    if (!buffer) { /* out of memory: return NaN */
        fill_rows_nan(task->out, first, first + features, units);
        fill_rows_nan(task->mean, first, first + features, 1);
        fill_rows_nan(task->variance, first, first + features, 1);
        return;
    }
    float *filtered = buffer + channels * stride, *mixed = filtered + channels * size, *scratch = mixed + n_features * size;
    for (long g = 0; g < groups; g++) {
        filter_signals(task, member, g, buffer, filtered);
        mix_interleaved(filtered, channels, times, task->spatial + first * channels, features, mixed, size);
        for (long r = 0; r < features; r++) memcpy(task->v + ((first + r) * groups + g) * size, mixed + r * size, 4 * size);
    }
    for (long row = first; row < first + features; row++) finish_units(task, row, scratch);
    free(buffer);
}

void second_forward(Parallel parallel, long threads, long members, const Block *task) {
    distribute(parallel, threads, members, second_item, task);
}

static void second_gradient_item(const void *argument, long member) {
    const Block *task = argument;
    const long times = task->times, taps = task->taps, channels = task->channels, features = task->features;
    const long groups = GROUPS(task->batch), first = member * features, right = taps - 1 - task->left;
    const long stride = (times + taps - 1) * LANES, size = times * LANES, slopes_size = groups * (size + 2 * LANES);
    const long units = task->batch * (times / task->pool), n_features = ROUND_UP(features);
    const long n_channels = ROUND_UP(channels);
    const long n_zeros = (channels + n_channels) * stride + n_features * size + channels * (taps + n_features) * LANES;
    const long n_others = channels * (size + taps + features) + units + size + features * slopes_size;
    float *buffer = malloc(4 * (n_zeros + n_others));
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
    memset(buffer, 0, 4 * n_zeros); /* padding, sums, and the gradient of missing signals */
    float *padded = buffer, *padded_grad = padded + channels * stride, *grads = padded_grad + n_channels * stride;
    float *sums = grads + n_features * size, *channel_sums = sums + channels * taps * LANES, *filtered = buffer + n_zeros;
    float *reversed = filtered + channels * size, *transposed = reversed + channels * taps;
    float *scratch = transposed + channels * features, *memory = scratch + units + size;
    for (long r = 0; r < features; r++, memory += slopes_size) {
        slopes[r] = (Slopes){memory, memory + groups * size, memory + groups * (size + LANES), 0.0f, 0.0f};
        slopes_of_units(task, first + r, scratch, &slopes[r]);
    }
    const float *w = task->w + member * channels * taps, *weight = task->spatial + first * channels;
    for (long i = 0; i < channels * taps; i++) reversed[i] = w[i / taps * taps + taps - 1 - i % taps];
    for (long i = 0; i < channels * features; i++) transposed[i] = weight[i % features * channels + i / features];

    for (long g = 0; g < groups; g++) {
        filter_signals(task, member, g, padded, filtered);
        for (long r = 0; r < features; r++) gradient_of_signal(task, &slopes[r], first + r, g, grads + r * size);
        for (long r = 0; r < features; r += JOINT) {
            const float *joint_grads[JOINT];
            for (long i = 0; i < JOINT; i++) joint_grads[i] = grads + (r + i) * size;
            sum_all_channels(joint_grads, filtered, size, channels, times, channel_sums + r * channels * LANES);
        }
        mix_interleaved(grads, features, times, transposed, channels, padded_grad + right * LANES, stride);
        for (long c = 0; c < channels; c++) {
            float *grad = padded_grad + c * stride;
            gradient_interleaved(padded + c * stride, grad + right * LANES, times, taps, task->left, sums + c * taps * LANES);
            filter_interleaved(grad, reversed + c * taps, times, taps, right, filtered);
            float *grad_x = task->grad_x + ((member * channels + c) * task->batch + g * LANES) * times;
            deinterleave(filtered, lanes_of(task, g), times, grad_x);
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
    distribute(parallel, threads, members, second_gradient_item, task);
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
    distribute(parallel, threads, count, interleave_item, task);
}

/* ---- latents of power ----------------------------------------------------------------------------------------------

   Latents are logarithms of power after normalization and dropout. */

typedef struct {
    const float *power, *gamma, *beta; /* (P, F, B·S), (P, F), (P, F) */
    const int16_t *draws;              /* (G, F·B·S); group, threshold and keep_scale as in NormPool */
    const int64_t *group;
    const int32_t *threshold;
    const float *keep_scale;
    float *logs, *out, *mean, *variance; /* (P, F, B·S), (P, B, F, S), (P, F) twice */
    const float *grad;                   /* gradient of out */
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
    const float mean = (float)(sum_of(logs, n) / n), variance = (float)(sum_squares_about(logs, n, mean) / n);
    task->mean[row] = mean;
    task->variance[row] = variance;
    const float keep_scale = task->keep_scale[member], scale = task->gamma[row] / sqrtf(variance + task->eps) * keep_scale;
    const float shift = task->beta[row] * keep_scale;
    const int16_t *draw = task->draws + (task->group[member] * features + feature) * n;
    const int threshold = task->threshold[member];
    float *out = task->out + (member * task->batch * features + feature) * count;
    for (long b = 0; b < task->batch; b++, logs += count, draw += count, out += features * count)
        for (long s = 0; s < count; s++) out[s] = draw[s] >= threshold ? (logs[s] - mean) * scale + shift : 0.0f;
}

void latents_forward(Parallel parallel, long threads, long members, const Latents *task) {
    distribute(parallel, threads, members * task->features, latents_item, task);
}

static void latents_gradient_item(const void *argument, long row) {
    const Latents *task = argument;
    const long features = task->features, count = task->segments, n = task->batch * count;
    const long member = row / features, feature = row % features;
    const float *power = task->power + row * n, *logs = task->logs + row * n;
    const float *grad = task->grad + (member * task->batch * features + feature) * count;
    float *slopes = task->grad_power + row * n;
    const int16_t *draw = task->draws + (task->group[member] * features + feature) * n;
    const int threshold = task->threshold[member];
    const float keep_scale = task->keep_scale[member], mean = task->mean[row];
    for (long b = 0; b < task->batch; b++, grad += features * count)
        for (long s = 0; s < count; s++)
            slopes[b * count + s] = draw[b * count + s] >= threshold ? grad[s] * keep_scale : 0.0f;
    double total = sum_of(slopes, n), dot = 0.0;
    for (long start = 0; start < n; start += CHUNK) {
        const long end = start + CHUNK < n ? start + CHUNK : n;
        vec sum = {0};
        long i = start;
        for (; i + LANES <= end; i += LANES) sum += load(slopes + i) * (load(logs + i) - mean);
        dot += sum_lanes(sum);
        for (; i < end; i++) dot += (double)slopes[i] * ((double)logs[i] - mean);
    }
    const float inverse = 1.0f / sqrtf(task->variance[row] + task->eps), scale = task->gamma[row] * inverse;
    task->grad_beta[row] = (float)total;
    task->grad_gamma[row] = (float)(dot * inverse);
    const float mean_term = (float)(scale * total / n), projection = (float)(scale * inverse * inverse * dot / n);
    for (long i = 0; i < n; i++)
        slopes[i] = (scale * slopes[i] - mean_term - projection * (logs[i] - mean)) / (power[i] + task->floor);
}

void latents_backward(Parallel parallel, long threads, long members, const Latents *task) {
    distribute(parallel, threads, members * task->features, latents_gradient_item, task);
}

/* ---- edges of windows ----------------------------------------------------------------------------------------------

   Sums and products of the first and last samples of windows: see edge_sums in model/moments.py. */

typedef struct {
    const float *x; /* (N, R, T) */
    float *out;     /* (N, E): sums on the right and left, products on the right and left, zeros */
    long rows, times, left, right, size;
} Edges;

#define EDGE_ROWS 4    /* number of rows whose products are added together */
#define EDGE_PIECE 64  /* number of rows that are summed in float32 */

/* Compute sums (n,) and products (n, n), from the diagonal on, of the first n samples of all rows, or of the last n
   samples in reverse. buffer: n · (n + 1) doubles and (EDGE_ROWS + n + 1) · width floats, all 0. */
static void sum_edge(
    const float *x, long rows, long times, long n, int is_reversed, long width, double *sums, double *products, float *heads
) {
    const long n_used = n < times ? n : times;
    float *piece = heads + EDGE_ROWS * width, *totals = piece + n * width;
    for (long start = 0; start < rows; start += EDGE_PIECE) {
        const long stop = start + EDGE_PIECE < rows ? start + EDGE_PIECE : rows;
        memset(piece, 0, 4 * (n + 1) * width);
        for (long r = start; r < stop; r += EDGE_ROWS) {
            for (long k = 0; k < EDGE_ROWS; k++) {
                const float *row = x + (r + k) * times;
                float *head = heads + k * width;
                if (r + k >= stop)
                    memset(head, 0, 4 * n_used);
                else if (is_reversed)
                    for (long i = 0; i < n_used; i++) head[i] = row[times - 1 - i];
                else
                    memcpy(head, row, 4 * n_used);
                for (long i = 0; i < n_used; i++) totals[i] += head[i];
            }
            for (long i = 0; i < n_used; i++) {
                for (long j = i / LANES * LANES; j < n_used; j += LANES) {
                    vec total = load(piece + i * width + j);
                    for (int k = 0; k < EDGE_ROWS; k++) total += heads[k * width + i] * load(heads + k * width + j);
                    store(piece + i * width + j, total);
                }
            }
        }
        for (long i = 0; i < n; i++) {
            sums[i] += totals[i];
            for (long j = i; j < n; j++) products[i * n + j] += piece[i * width + j];
        }
    }
}

static void edges_item(const void *argument, long number) {
    const Edges *task = argument;
    const long sides[2] = {task->right, task->left}, longest = sides[0] > sides[1] ? sides[0] : sides[1];
    const long width = (longest + LANES - 1) / LANES * LANES;
    const float *x = task->x + number * task->rows * task->times;
    float *out = task->out + number * task->size, *triangle = out + sides[0] + sides[1];
    const long bytes = 8 * (longest * (longest + 1) + 1) + 4 * width * (longest + EDGE_ROWS + 1);
    double *buffer = malloc(bytes);
    for (long i = 0; i < task->size; i++) out[i] = buffer ? 0.0f : NAN; /* out of memory: return NaN */
    for (int side = 0; buffer && side < 2; out += sides[side], side++) {
        const long n = sides[side];
        double *products = buffer + longest, total = 0.0;
        memset(buffer, 0, bytes);
        float *heads = (float *)(buffer + longest * (longest + 1));
        sum_edge(x, task->rows, task->times, n, side, width, buffer, products, heads);
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
    distribute(parallel, threads, count, edges_item, task);
}

/* ---- thin products -------------------------------------------------------------------------------------------------

   Channels of shared signals are mixed for every member: (M, K) × (K, N) with short sides M and K. Members of the same
   signals are processed one after another. A piece of the signals is packed before it is used for these members, because
   signals are often powers of two apart in memory, so that few signals fit into a cache. */

typedef struct {
    const float *a, *b;   /* (P, M, K), or (P, M, N) in the gradient; (G, K, N) */
    const int64_t *group; /* (P,) index of the signals of a member */
    const int64_t *order; /* (P,) members sorted by their group */
    float *out;           /* (P, M, N), or (P, M, K) in the gradient */
    long members, rows, inner, columns;
    long per_item; /* members per item */
} Product;

#if defined(__AVX__) && !defined(__AVX512F__)
#define WIDE 2 /* number of vectors of MIXED rows that are mixed together */
#else
#define WIDE 4
#endif
#define MIXED 4
#define PACKED 32768 /* number of values in a piece */
#define PIECE (WIDE * LANES)
#if defined(__AVX__) && !defined(__AVX512F__)
#define ROWS_B 3 /* number of rows of b whose products with ROWS_A rows of a are summed together */
#else
#define ROWS_B 6
#endif
#define ROWS_A 4

/* Multiply weights (count, k) by signals (k, times); stride: distance between signals. */
static void mix_rows(
    const float *weight, const float *x, long k, long stride, long times, long count, float *out, long out_stride
) {
    for (long start = 0; start < times; start += WIDE * LANES) {
        /* The last tile ends at the last sample. A signal shorter than a tile is padded in its buffer. */
        const long t = start + WIDE * LANES <= times || times < WIDE * LANES ? start : times - WIDE * LANES;
        for (long r = 0; r < count; r += MIXED) {
            const float *row[MIXED], *from = x + t;
            vec total[MIXED][WIDE];
            for (int i = 0; i < MIXED; i++) {
                row[i] = weight + (r + i < count ? r + i : count - 1) * k;
                for (int j = 0; j < WIDE; j++) total[i][j] = broadcast(0.0f);
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

/* Copy columns `first` to `first + count` of `rows` rows to rows of `width` numbers, padded with zeros. */
static void pack(const float *source, long rows, long columns, long first, long count, float *target, long width) {
    for (long r = 0; r < rows; r++) {
        memcpy(target + r * width, source + r * columns + first, 4 * count);
        memset(target + r * width + count, 0, 4 * (width - count));
    }
}

/* Set a result (rows, count) to NaN, because memory is exhausted. */
static void fill_nan(float *out, long rows, long columns, long count) {
    for (long r = 0; r < rows; r++)
        for (long i = 0; i < count; i++) out[r * columns + i] = NAN;
}

static long piece_of(long inner) {
    const long columns = PACKED / inner / PIECE * PIECE;
    return columns > PIECE ? columns : PIECE;
}

static void product_item(const void *argument, long number) {
    const Product *task = argument;
    const long rows = task->rows, inner = task->inner, columns = task->columns, width = piece_of(inner);
    const long runs = (task->members + task->per_item - 1) / task->per_item, start = number % runs * task->per_item;
    const long first = number / runs * width, count = first + width < columns ? width : columns - first;
    const long stop = start + task->per_item < task->members ? start + task->per_item : task->members;
    float *buffer = calloc(inner * width + rows * PIECE, 4);
    if (!buffer) {
        for (long i = start; i < stop; i++) fill_nan(task->out + task->order[i] * rows * columns + first, rows, columns, count);
        return;
    }
    float *narrow = buffer + inner * width;
    for (long i = start, packed_group = -1; i < stop; i++) {
        const long member = task->order[i], group = task->group[member];
        if (group != packed_group) pack(task->b + group * inner * columns, inner, columns, first, count, buffer, width);
        packed_group = group;
        const float *weight = task->a + member * rows * inner;
        float *out = task->out + member * rows * columns + first;
        if (count >= PIECE) {
            mix_rows(weight, buffer, inner, width, count, rows, out, columns);
        } else {
            mix_rows(weight, buffer, inner, width, count, rows, narrow, PIECE);
            for (long r = 0; r < rows; r++) memcpy(out + r * columns, narrow + r * PIECE, 4 * count);
        }
    }
    free(buffer);
}

void product(Parallel parallel, long threads, long count, const Product *task) {
    const long width = piece_of(task->inner), runs = (count + task->per_item - 1) / task->per_item;
    distribute(parallel, threads, (task->columns + width - 1) / width * runs, product_item, task);
}

#define SUMMED 256 /* number of columns in a piece */

/* Add the products of ROWS_A rows of a and ROWS_B rows of b, summed over the columns of a piece, to sums (rows, inner). */
INLINE void sum_tile(const float *a, const float *b, float *sums, long rows_a, long rows_b, long inner) {
    vec total[ROWS_A][ROWS_B];
    const float *row_a[ROWS_A], *row_b[ROWS_B];
    for (int i = 0; i < ROWS_A; i++) row_a[i] = a + (i < rows_a ? i : rows_a - 1) * SUMMED;
    for (int j = 0; j < ROWS_B; j++) row_b[j] = b + (j < rows_b ? j : rows_b - 1) * SUMMED;
    for (int i = 0; i < ROWS_A; i++)
        for (int j = 0; j < ROWS_B; j++) total[i][j] = broadcast(0.0f);
    for (long t = 0; t < SUMMED; t += LANES) {
        vec values[ROWS_A];
        for (int i = 0; i < ROWS_A; i++) values[i] = load(row_a[i] + t);
        for (int j = 0; j < ROWS_B; j++) {
            const vec other_values = load(row_b[j] + t);
            for (int i = 0; i < ROWS_A; i++) total[i][j] += values[i] * other_values;
        }
    }
    for (int i = 0; i < ROWS_A && i < rows_a; i++)
        for (int j = 0; j < ROWS_B && j < rows_b; j++) {
            float *target = sums + (i * inner + j) * LANES;
            store(target, load(target) + total[i][j]);
        }
}

static void product_gradient_item(const void *argument, long number) {
    const Product *task = argument;
    const long rows = task->rows, inner = task->inner, columns = task->columns, stride = rows * inner * LANES;
    const long start = number * task->per_item;
    const long stop = start + task->per_item < task->members ? start + task->per_item : task->members;
    float *buffer = calloc((inner + rows) * SUMMED + (stop - start) * stride, 4);
    if (!buffer) {
        for (long i = start; i < stop; i++) fill_nan(task->out + task->order[i] * rows * inner, rows, inner, inner);
        return;
    }
    float *packed = buffer, *slopes = buffer + inner * SUMMED, *sums = slopes + rows * SUMMED;
    for (long first = 0; first < columns; first += SUMMED) {
        const long count = first + SUMMED < columns ? SUMMED : columns - first;
        for (long i = start, packed_group = -1; i < stop; i++) {
            const long member = task->order[i], group = task->group[member];
            if (group != packed_group) pack(task->b + group * inner * columns, inner, columns, first, count, packed, SUMMED);
            packed_group = group;
            pack(task->a + member * rows * columns, rows, columns, first, count, slopes, SUMMED);
            float *totals = sums + (i - start) * stride;
            for (long k = 0; k < inner; k += ROWS_B)
                for (long r = 0; r < rows; r += ROWS_A)
                    sum_tile(
                        slopes + r * SUMMED, packed + k * SUMMED, totals + (r * inner + k) * LANES, rows - r, inner - k,
                        inner
                    );
        }
    }
    for (long i = start; i < stop; i++) {
        float *out = task->out + task->order[i] * rows * inner;
        for (long r = 0; r < rows * inner; r++) out[r] = (float)sum_lanes(load(sums + (i - start) * stride + r * LANES));
    }
    free(buffer);
}

/* Compute (M, N) × (K, N)ᵀ, the gradient of the weights of a product. */
void product_gradient(Parallel parallel, long threads, long count, const Product *task) {
    distribute(parallel, threads, (count + task->per_item - 1) / task->per_item, product_gradient_item, task);
}

/* ---- append_scale --------------------------------------------------------------------------------------------------

   The computation is in float64, because rounding errors of a constant channel would be scaled up in float32. The
   expression `a < b ? b : a` preserves NaN and infinity, where a may be NaN. */

typedef double dvec __attribute__((vector_size(4 * LANES), aligned(8), may_alias));
#define DOUBLES (LANES / 2)

/* Return the sum of n numbers, or of their squares. */
INLINE double sum_doubles(const double *x, long n, int squared) {
    dvec sum[4] = {{0}};
    long i = 0;
    for (; i + 4 * DOUBLES <= n; i += 4 * DOUBLES)
        for (int j = 0; j < 4; j++) {
            const dvec values = *(const dvec *)(x + i + j * DOUBLES);
            if (squared)
                sum[j] += values * values;
            else
                sum[j] += values;
        }
    const dvec sums = (sum[0] + sum[1]) + (sum[2] + sum[3]);
    double total = 0.0;
    for (int j = 0; j < DOUBLES; j++) total += sums[j];
    for (; i < n; i++) total += squared ? x[i] * x[i] : x[i];
    return total;
}

/* Store x minus the mean of x in `copy`, exactly 0 for a constant row, and return the mean. */
static double center(const float *x, long n, double *copy) {
    const double first = x[0];
    for (long i = 0; i < n; i++) copy[i] = x[i] - first;
    const double mean = sum_doubles(copy, n, 0) / n;
    for (long i = 0; i < n; i++) copy[i] -= mean;
    return first + mean;
}

/* Compute append_scale: windows (N, C, T) -> (N, 3C, T). */
void append_scale(long windows, long channels, long times, double min_deviation, double log_offset, const float *x,
                  float *out, double *buffer) {
    for (long n = 0; n < windows; n++, out += 3 * channels * times)
        for (long c = 0; c < channels; c++, x += times) {
            const double mean = center(x, times, buffer), spread = sqrt(sum_doubles(buffer, times, 1) / times);
            const double factor = 1.0 / (spread < min_deviation ? min_deviation : spread);
            const float mean_value = (float)mean, log_spread = (float)log(spread + log_offset);
            float *shape = out + c * times, *means = shape + channels * times, *spreads = means + channels * times;
            for (long t = 0; t < times; t++) {
                shape[t] = (float)(buffer[t] * factor);
                means[t] = mean_value;
                spreads[t] = log_spread;
            }
        }
}

/* ---- length scales -------------------------------------------------------------------------------------------------- */

typedef struct {
    const float *nearness, *entropy; /* (rows, count), (rows,) */
    float *log_beta;                 /* (rows,) */
    long count, bisections, newton_steps;
    float bracket;
} Scales;

/* Add the weights of a row, weights times log weights, and weights times squared log weights to `sums`. */
INLINE void add_weights(const float *nearness, float scale, int vectors, vec sums[3]) {
    for (int k = 0; k < vectors; k++) {
        vec scaled = scale * load(nearness + k * LANES);
        scaled = choose(scaled < -86.0f, broadcast(-86.0f), scaled); /* the exponential is practically 0 */
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
    float low = -task->bracket, high = task->bracket, log_beta = 0.0f;
    for (long step = 0; step < task->bisections + task->newton_steps; step++) {
        const float scale = expf(log_beta);
        vec sums[3] = {{0}};
        long i = 0;
        for (; i + UNROLL * LANES <= task->count; i += UNROLL * LANES) add_weights(nearness + i, scale, UNROLL, sums);
        for (; i + LANES <= task->count; i += LANES) add_weights(nearness + i, scale, 1, sums);
        if (i < task->count) { /* the remaining lanes have weight 0 */
            float buffer[LANES];
            store(buffer, broadcast(-1e30f));
            memcpy(buffer, nearness + i, 4 * (task->count - i));
            add_weights(buffer, scale, 1, sums);
        }
        double total = sum_lanes(sums[0]);
        total = total < 1.17549435e-38 ? 1.17549435e-38 : total;
        const double mean = sum_lanes(sums[1]) / total;
        const float error = (float)(log(total) - mean) - task->entropy[row];
        *(error > 0.0f ? &low : &high) = log_beta;
        if (step >= task->bisections) {
            double slope = sum_lanes(sums[2]) / total - mean * mean;
            slope = slope < 1.17549435e-38 ? 1.17549435e-38 : slope;
            log_beta = (float)(log_beta + error / slope);
        }
        if (step < task->bisections || !(log_beta >= low && log_beta <= high)) log_beta = (low + high) / 2.0f;
    }
    task->log_beta[row] = log_beta;
}

void log_scales(Parallel parallel, long threads, long rows, const Scales *task) {
    distribute(parallel, threads, rows, scales_item, task);
}

/* ---- indices ---------------------------------------------------------------------------------------------------- */

/* Return whether an entry of an index lies outside [0, bound). */
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
