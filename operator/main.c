#include "app/ko_app.h"

int main(int argc, char **argv)
{
    return ko_app_main(argc, argv);
}
