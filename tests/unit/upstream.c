/* To come. */
int main(void)
{
    return 0;
}
