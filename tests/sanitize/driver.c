/* Calls kernels with every buffer in a block of exactly its size, so that a sanitizer sees the first byte beyond it.

   Linked with kernels.c and built with sanitizers, this is a process that tests/sanitizing.py sends calls to. A call is
   a function's name and its arguments as bytes; where a buffer's address belongs, the buffer follows. All numbers are
   int64. Back come the function's result and the buffers as it left them. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 32 /* buffers of a call */

typedef void (*Threaded)(void *parallel, long threads, long count, const void *task);
#define THREADED(name) void name(void *parallel, long threads, long count, const void *task);
THREADED(norm_pool_forward)
THREADED(norm_pool_backward)
THREADED(filter_times)
THREADED(filter_gradient)
THREADED(block_forward)
THREADED(block_backward)
THREADED(lay_out)
THREADED(edge_sums)
THREADED(second_forward)
THREADED(second_backward)
THREADED(latents_forward)
THREADED(latents_backward)
THREADED(product)
THREADED(product_gradient)
THREADED(log_scales)
void append_scale(long, long, long, double, double, const float *, float *, double *);
int outside(const int64_t *, long, long);
void mix_words(long, const uint32_t *, uint32_t *);

static const struct {
    const char *name;
    Threaded function;
} threaded[] = {
    {"norm_pool_forward", norm_pool_forward}, {"norm_pool_backward", norm_pool_backward},
    {"filter_times", filter_times}, {"filter_gradient", filter_gradient}, {"product", product},
    {"block_forward", block_forward}, {"block_backward", block_backward}, {"lay_out", lay_out},
    {"edge_sums", edge_sums},
    {"second_forward", second_forward}, {"second_backward", second_backward},
    {"latents_forward", latents_forward}, {"latents_backward", latents_backward},
    {"product_gradient", product_gradient}, {"log_scales", log_scales},
};

static void receive(void *to, size_t count) {
    if (fread(to, 1, count, stdin) != count) exit(feof(stdin) ? 0 : 3);
}

static int64_t number(void) {
    int64_t value;
    receive(&value, sizeof value);
    return value;
}

static void send(const void *from, size_t count) {
    if (fwrite(from, 1, count, stdout) != count) exit(3);
}

/* Arguments of other functions are words of eight bytes. */
#define N(i) (*(long *)(words + 8 * (i)))
#define D(i) (*(double *)(words + 8 * (i)))
#define P(i) (*(void **)(words + 8 * (i)))

static int64_t call_plain(const char *name, char *words) {
    if (!strcmp(name, "append_scale"))
        append_scale(N(0), N(1), N(2), D(3), D(4), P(5), P(6), P(7));
    else if (!strcmp(name, "outside"))
        return outside(P(0), N(1), N(2));
    else if (!strcmp(name, "mix_words"))
        mix_words(N(0), P(1), P(2));
    else {
        fprintf(stderr, "no function is called %s\n", name);
        exit(3);
    }
    return 0;
}

int main(void) {
    for (;;) {
        char name[64] = {0};
        const int64_t length = number();
        receive(name, (size_t)length < sizeof name ? (size_t)length : sizeof name - 1);
        const int64_t threads = number(), count = number(), size = number();
        char *words = malloc((size_t)size);
        receive(words, (size_t)size);
        const int64_t buffers = number();
        int64_t sizes[MOST];
        void *blocks[MOST];
        if (buffers > MOST) return 3;
        for (int64_t i = 0; i < buffers; i++) {
            const int64_t place = number();
            sizes[i] = number();
            blocks[i] = malloc((size_t)sizes[i]);
            receive(blocks[i], (size_t)sizes[i]);
            memcpy(words + place, &blocks[i], sizeof(void *));
        }
        int64_t result = 0;
        Threaded function = NULL;
        for (size_t i = 0; i < sizeof threaded / sizeof *threaded; i++)
            if (!strcmp(threaded[i].name, name)) function = threaded[i].function;
        if (function)
            function(NULL, threads, count, words); /* NULL: threads of its own, which a sanitizer can follow */
        else
            result = call_plain(name, words);
        send(&result, sizeof result);
        for (int64_t i = 0; i < buffers; i++) {
            send(blocks[i], (size_t)sizes[i]);
            free(blocks[i]);
        }
        fflush(stdout);
        free(words);
    }
}
